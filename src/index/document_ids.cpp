#include "src/index/document_ids.h"

#include <algorithm>

#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::index {

bool is_readable(std::string_view text) {
  const bool control =
      std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  return !control && is_utf8(text);
}

void check_id(std::string_view id, const std::string& place) {
  if (id.empty()) user_error(place, ": its id is empty");
  if (!is_readable(id))
    user_error(place, ": the id \"", printable(id), "\" has control characters, or bytes that are not UTF-8");
}

}  // namespace tessera::index
