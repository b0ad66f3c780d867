"""The figures on the page of a fit, each an inline SVG image."""
