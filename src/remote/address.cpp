#include "src/remote/address.h"

#include <algorithm>
#include <array>

#include <tessera/base/error.h>

namespace tessera::remote {

bool is_remote(std::string_view text) {
  return std::ranges::any_of(std::array{"s3://", "gs://", "http://", "https://"},
                             [&](const char* scheme) { return text.starts_with(scheme); });
}

Address parse_address(const std::string& text) {
  if (!is_remote(text)) user_error(text, ": expected s3://BUCKET/KEY, gs://BUCKET/KEY, http://HOST/PATH or https://HOST/PATH");
  const std::size_t colon = text.find("://"), begin = colon + 3, slash = std::min(text.find('/', begin), text.size());
  Address out{text.substr(0, colon), text.substr(begin, slash - begin), text.substr(std::min(slash + 1, text.size()))};
  if (out.host.empty()) user_error(text, ": names no ", out.is_bucket() ? "bucket" : "host");
  return out;
}

std::string file_name(const std::string& address) {
  const Address parts = parse_address(address);
  const std::string path = parts.is_bucket() ? parts.key : parts.key.substr(0, parts.key.find_first_of("?#"));
  return path.substr(path.rfind('/') + 1);
}

std::string percent_encoded(std::string_view text, bool slashes) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~", digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (plain.find(c) != std::string_view::npos || (c == '/' && !slashes))
      out += c;
    else
      (((out += '%') += digits[byte >> 4]) += digits[byte & 15]);
  }
  return out;
}

}  // namespace tessera::remote
