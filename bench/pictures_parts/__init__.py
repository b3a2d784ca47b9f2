"""Parts of pictures.py: a canvas of SVG, and one file for each kind of picture."""
