"""Small PDF, Word, PowerPoint, Excel and EPUB files."""

import zipfile


def write_pdf(path, pages, *, title=None, bookmarks=(), password=None):
    """Write pages of lines; bookmarks: (page from 1, level from 0, name, lines above it on its page)."""
    from fpdf import FPDF

    pdf = FPDF()
    pdf.set_font("Helvetica", size=12)
    if title:
        pdf.set_title(title)
    if password:
        pdf.set_encryption(owner_password=password, user_password=password)
    for number, lines in enumerate(pages, start=1):
        pdf.add_page()
        for place in range(len(lines) + 1):
            for page, level, name, above in bookmarks:
                if (page, above) == (number, place):
                    pdf.start_section(name, level=level)
            for line in lines[place : place + 1]:
                pdf.cell(text=line, h=20, new_x="LMARGIN", new_y="NEXT")
    pdf.output(str(path))


def _word_table(rows):
    """Return a table of Word. A cell is its text, or text, the columns that it goes over, and "restart" or "continue".

    The last says where a cell that goes over several rows begins, and where it goes on.
    """
    written = ""
    for row in rows:
        written += "<w:tr>"
        for cell in row:
            text, columns, merge = (cell, 1, "") if isinstance(cell, str) else cell
            merged = f'<w:vMerge w:val="{merge}"/>' if merge else ""
            written += (
                f'<w:tc><w:tcPr><w:gridSpan w:val="{columns}"/>{merged}</w:tcPr>'
                f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>"
            )
        written += "</w:tr>"
    return f"<w:tbl>{written}</w:tbl>"


def write_docx(path, paragraphs):
    """Write paragraphs; one that begins with "# " or "## " is a heading, a list of rows a table."""
    body = ""
    for text in paragraphs:
        if not isinstance(text, str):
            body += _word_table(text)
            continue
        level = len(text) - len(text.lstrip("#"))
        style = f'<w:pPr><w:pStyle w:val="Heading{level}"/></w:pPr>' if level else ""
        body += f"<w:p>{style}<w:r><w:t>{text.lstrip('# ')}</w:t></w:r></w:p>"
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{n}"><w:name w:val="heading {n}"/></w:style>' for n in (1, 2)
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
            f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{main}.document.main+xml"/>'
            f'<Override PartName="/word/styles.xml" ContentType="{main}.styles+xml"/></Types>',
        )
        for name, target in (
            ("_rels/.rels", "officeDocument word/document.xml"),
            ("word/_rels/document.xml.rels", "styles styles.xml"),
        ):
            type_name, where = target.split()
            archive.writestr(
                name,
                f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{kind}/{type_name}" '
                f'Target="{where}"/></Relationships>',
            )
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>')
        archive.writestr("word/styles.xml", f'<w:styles xmlns:w="{word}">{styles}</w:styles>')


def write_pptx(path, slides):
    """Write slides of (title, text)."""
    from pptx import Presentation

    deck = Presentation()
    for title, text in slides:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    deck.save(path)


def write_xlsx(path, sheets):
    """Write sheets of rows, by name."""
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)


def rewrite(path, member, changes):
    """Write an archive again, with texts of one of its members replaced."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for old, new in changes.items():
        members[member] = members[member].replace(old.encode(), new.encode())
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def write_epub(path, title, chapters):
    """Write chapters of HTML."""
    names = [f"c{number}" for number in range(len(chapters))]
    items = "".join(f'<item id="{n}" href="{n}.xhtml" media-type="application/xhtml+xml"/>' for n in names)
    spine = "".join(f'<itemref idref="{n}"/>' for n in names)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>'
            '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        )
        archive.writestr(
            "book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="i"><metadata '
            f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title><dc:identifier id="i">x'
            f"</dc:identifier></metadata><manifest>{items}</manifest><spine>{spine}</spine></package>",
        )
        for name, chapter in zip(names, chapters, strict=True):
            archive.writestr(f"{name}.xhtml", f"<html><body>{chapter}</body></html>")
