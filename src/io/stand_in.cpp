#include "src/io/stand_in.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::io {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Returns the first line if the beginning of the file is text, otherwise "".
std::string_view first_line(std::string_view start) {
  start = start.substr(0, 40);
  const bool is_text = std::ranges::all_of(start, [](char c) {
    return c == '\n' || c == '\r' || c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
  });
  return is_text ? start.substr(0, start.find_first_of("\r\n")) : "";
}

std::string quoted(std::string_view line) {
  return concat("it begins with the text \"", printable(line), "\"");
}

}  // namespace

std::string describe_stand_in(std::string_view start) {
  if (start.starts_with(kByteOrderMark)) start.remove_prefix(kByteOrderMark.size());
  start = strip(start.substr(0, 200));
  const std::string_view line = first_line(start);
  if (line.starts_with("version https://git-lfs")) return quoted(line) + ": it is a pointer of Git LFS, not the file: run git lfs pull";
  std::string lower(line);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool is_page = std::ranges::any_of(std::array{"<!doctype", "<!--", "<html", "<head", "<?xml", "<error"},
                                           [&](const char* page) { return lower.starts_with(page); });
  if (is_page || start == "404: Not Found")
    return quoted(line) + ": it is a web page or an error message, not the file: download it again";
  return {};
}

std::string describe_text(std::string_view start) {
  const std::string known = describe_stand_in(start);
  const std::string_view line = first_line(start);
  return known.empty() && !line.empty() ? quoted(line) : known;
}

void remove_byte_order_mark(std::string& text) {
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
}

std::string read_data_file(const std::string& path, const std::string& name) {
  const std::string& known = name.empty() ? path : name;
  std::string content = read_file(path);
  remove_byte_order_mark(content);
  if (const std::string text = describe_stand_in(content); !text.empty()) user_error(known, ": is not a file of data: ", text);
  if (content.empty()) log::warning(known, ": is empty");
  return content;
}

}  // namespace tessera::io
