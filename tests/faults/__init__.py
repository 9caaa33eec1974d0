# SPDX-License-Identifier: Apache-2.0

"""What happens to us and to others when something beside us breaks."""
