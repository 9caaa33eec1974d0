# SPDX-License-Identifier: Apache-2.0

"""Files of operators: strict YAML and JSON, replaced as a whole."""
