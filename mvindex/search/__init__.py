"""Search: one request, one plan, one loop; engines only ever propose candidates."""
