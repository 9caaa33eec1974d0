# SPDX-License-Identifier: Apache-2.0

"""Pure functions over requests, decisions and fleets, for operators."""
