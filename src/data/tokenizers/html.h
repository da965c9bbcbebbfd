#pragma once

#include <string>
#include <string_view>

namespace tessera::html {

/// Python's html.unescape: numeric references, and HTML5's names with or without `;` as the standard lists them, else
/// the longest listed prefix.
std::u32string unescape(std::u32string_view text);

/// ftfy's stricter form: only `&name;` and `&#...;`, and also names in upper case that HTML5 does not know
/// (`&EACUTE;`).
std::u32string unescape_strict(std::u32string_view text);

}  // namespace tessera::html
