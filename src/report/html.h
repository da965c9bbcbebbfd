#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/text.h>

namespace tessera::report {

/// Replaces & < > " by entities, and bytes that are not UTF-8 by U+FFFD.
std::string escape(std::string_view text);

/// Escapes the text like escape(), and allows line breaks after / and _, before @, and after a period if the next character is a letter.
std::string breakable(std::string_view text);

/// Returns a card with one value and its name; both are escaped.
std::string number_card(const std::string& value, const std::string& name);

/// Returns a card with the facts' names and values, or an empty text if there are no facts.
std::string fact_card(const std::vector<std::pair<std::string, std::string>>& facts);

/// Returns a whole page. `title` is escaped; `head` (further elements of <head>) and `body` are HTML.
std::string page(const std::string& title, const std::string& head, const std::string& body);

}  // namespace tessera::report
