"""Tables of rows that benches print."""


def print_table(columns, rows):
    """Print rows, mappings by column, as aligned columns: texts to the left, all else to the right."""
    widths = {column: max(len(column), *(len(str(row[column])) for row in rows)) for column in columns}
    is_text = {column: all(isinstance(row[column], str) for row in rows) for column in columns}

    def line(cells):
        aligned = (cell.ljust if is_text[column] else cell.rjust for column, cell in zip(columns, cells, strict=True))
        print("  ".join(align(widths[column]) for column, align in zip(columns, aligned, strict=True)))

    line(columns)
    for row in rows:
        line([str(row[column]) for column in columns])
