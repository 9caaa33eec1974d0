"""Tools of operators and plugin authors: commands, their answers, and the test kit. The library is os_prefilter."""
