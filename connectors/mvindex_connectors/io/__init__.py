"""What is imported by way of other libraries; each is found by an entry point of the group mvindex.imports."""
