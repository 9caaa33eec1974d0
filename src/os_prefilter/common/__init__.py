"""What every part uses: errors, quoting of untrusted text, entry points, threads."""
