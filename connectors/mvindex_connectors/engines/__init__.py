"""Vector libraries and servers as mvindex engines, one file each."""
