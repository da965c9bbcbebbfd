#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::report {

/// & < > " as entities; bytes that are not UTF-8 as U+FFFD.
std::string escape(std::string_view text);

/// The same, with places where a line may break: behind /, _ and the point before a word, and before @.
std::string breakable(std::string_view text);

/// A number with so many digits after the point.
std::string fixed(double value, int digits);

/// A card with one value and what it is; both are escaped.
std::string number_card(const std::string& value, const std::string& name);

/// Names and values in a card; empty for none.
std::string fact_card(const std::vector<std::pair<std::string, std::string>>& facts);

/// A whole page: `title` is escaped, `head` (further elements of <head>) and `body` are HTML.
std::string page(const std::string& title, const std::string& head, const std::string& body);

}  // namespace tessera::report
