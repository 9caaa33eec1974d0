"""What operators and authors of plugins run: commands, their answers, and the test kit. The library is os_prefilter."""
