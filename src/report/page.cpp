#include "src/report/page.h"

#include <filesystem>
#include <string_view>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include <tessera/base/error.h>
#include <tessera/config/shipped.h>
#include <tessera/io/atomic_file.h>

namespace tessera::report {

extern const char* const kDygraphs;  // the plotting library (cmake/dygraphs.cpp.in)

namespace {

constexpr std::string_view kDataPlace = "@DATA@", kLibraryPlace = "@DYGRAPHS@";

/// Returns the JSON as text without the character <, so that no text in it can end the script that contains it.
std::string script_text(const nlohmann::json& data) {
  std::string out;
  for (const char c : dump_utf8(data)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string page(const nlohmann::json& data) {
  const std::string file = config::shipped_folder() + "/page.html";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored))
    user_error(file, ": the template of pages is missing from the configurations that ship with Tessera");
  const std::string text = io::read_file(file);
  const std::size_t place = text.find(kDataPlace), library = text.find(kLibraryPlace);
  if (place == std::string::npos || library == std::string::npos || library < place)
    user_error(file, ": is not a template of pages: it must contain ", kDataPlace, " and, after it, ", kLibraryPlace);
  const std::size_t middle = place + kDataPlace.size(), end = library + kLibraryPlace.size();
  return concat(text.substr(0, place), script_text(data), text.substr(middle, library - middle), kDygraphs, text.substr(end));
}

}  // namespace tessera::report
