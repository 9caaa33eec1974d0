# SPDX-License-Identifier: Apache-2.0

"""Files that operators write and read: strict YAML and JSON, and files
replaced as a whole.
"""
