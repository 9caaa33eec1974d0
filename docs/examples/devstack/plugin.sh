# SPDX-License-Identifier: Apache-2.0

# A plugin of DevStack: install os-prefilter where nova-scheduler runs.
if [[ "$1" == "stack" && "$2" == "install" ]]; then
    pip_install -e "$DEST/os-prefilter"
fi
