#pragma once

#include <string>
#include <string_view>

namespace tessera::html {

/// Does what Python's html.unescape does: replaces numeric references and the names that HTML5 lists, some of which need no `;`. If a name
/// is not listed, its longest listed prefix is replaced.
std::u32string unescape(std::u32string_view text);

/// Unescapes by ftfy's rules, which require the final `;` (`&name;`, `&#...;`). Unlike unescape(), also replaces upper-case names that
/// HTML5 does not list (`&EACUTE;`).
std::u32string unescape_strict(std::u32string_view text);

}  // namespace tessera::html
