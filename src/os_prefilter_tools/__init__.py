# SPDX-License-Identifier: Apache-2.0

"""Tools of operators and plugin authors: commands and the test kit."""
