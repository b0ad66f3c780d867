"""`kising fit`: a recording from a file, fitted with progress and checkpoints; the results are a folder with a page."""
