"""What every part uses: quoting of untrusted text, entry points, threads."""
