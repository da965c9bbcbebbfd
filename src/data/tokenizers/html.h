#pragma once

#include <string>
#include <string_view>

namespace tessera::html {

/// Python's html.unescape: replaces numeric references, and HTML5's names with or without `;` as the standard lists them. Of a name
/// that is not listed, it replaces the longest listed prefix.
std::u32string unescape(std::u32string_view text);

/// ftfy's stricter form: replaces only `&name;` and `&#...;`, but also names in upper case that HTML5 does not list (`&EACUTE;`).
std::u32string unescape_strict(std::u32string_view text);

}  // namespace tessera::html
