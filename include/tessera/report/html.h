#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::report {

/// Replaces & < > " by entities, and bytes that are not UTF-8 by U+FFFD.
std::string escape(std::string_view text);

/// The same, with possible line breaks after / and _, after a point before a word, and before @.
std::string breakable(std::string_view text);

/// Formats a number with `digits` digits after the point.
std::string fixed(double value, int digits);

/// A card with one value and its name; both are escaped.
std::string number_card(const std::string& value, const std::string& name);

/// A card with names and values; empty if there are none.
std::string fact_card(const std::vector<std::pair<std::string, std::string>>& facts);

/// A whole page: `title` is escaped, `head` (further elements of <head>) and `body` are HTML.
std::string page(const std::string& title, const std::string& head, const std::string& body);

}  // namespace tessera::report
