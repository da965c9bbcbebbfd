#include "src/remote/address.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::remote {
namespace {

namespace fs = std::filesystem;

std::string without_query(const std::string& address) {
  return parse_address(address).has_folders() ? address : address.substr(0, address.find_first_of("?#"));
}

// Parses what follows hf://.
Address parse_hub(const std::string& text, const std::string& rest) {
  std::vector<std::string> parts = split(rest, '/');
  Address out{"hf", "", "", "main"};
  if (parts[0] == "datasets" || parts[0] == "spaces") out.host = parts[0] + "/";
  if (!out.host.empty() || parts[0] == "models") parts.erase(parts.begin());
  if (parts.size() < 2 || parts[0].empty() || parts[1].empty() || parts[1].starts_with('@'))
    user_error(text, ": expected hf://OWNER/NAME or hf://datasets/OWNER/NAME, with @REVISION and /PATH as needed");
  const std::size_t at = parts[1].find('@');
  out.host += parts[0] + "/" + parts[1].substr(0, at);
  std::size_t used = 2;
  if (at != std::string::npos) {
    out.revision = parts[1].substr(at + 1);
    if (out.revision == "refs" && parts.size() > 3 && (parts[2] == "pr" || parts[2] == "convert"))
      for (; used < 4; ++used) out.revision += "/" + parts[used];
    for (const char* slash : {"%2F", "%2f"})
      for (std::size_t found = 0; (found = out.revision.find(slash)) != std::string::npos;) out.revision.replace(found, 3, "/");
    if (out.revision.empty()) user_error(text, ": expected a branch, a tag or a commit after @");
  }
  for (std::size_t i = used; i < parts.size(); ++i) out.key += (i == used ? "" : "/") + parts[i];
  return out;
}

}  // namespace

bool is_remote(std::string_view text) {
  return std::ranges::any_of(std::array{"s3://", "gs://", "hf://", "http://", "https://"},
                             [&](const char* scheme) { return text.starts_with(scheme); });
}

Address parse_address(const std::string& text) {
  if (!is_remote(text))
    user_error(text, ": expected s3://BUCKET/KEY, gs://BUCKET/KEY, hf://OWNER/NAME/PATH, http://HOST/PATH or https://HOST/PATH");
  const std::size_t colon = text.find("://"), begin = colon + 3, slash = std::min(text.find('/', begin), text.size());
  if (text.starts_with("hf:")) return parse_hub(text, text.substr(begin));
  Address out{text.substr(0, colon), text.substr(begin, slash - begin), text.substr(std::min(slash + 1, text.size()))};
  if (out.host.empty()) user_error(text, ": names no ", out.is_bucket() ? "bucket" : "host");
  return out;
}

std::string file_name(const std::string& name) {
  if (!is_remote(name)) return fs::path(name).filename().string();
  const std::string path = without_query(name);
  return path.substr(path.rfind('/') + 1);
}

std::string folder_of(const std::string& name) {
  if (!is_remote(name)) return fs::path(name).parent_path().string();
  const std::string path = without_query(name);
  return path.substr(0, path.rfind('/'));
}

std::string joined(const std::string& folder, const std::string& name) {
  if (is_remote(name)) return name;
  if (!is_remote(folder) || name.starts_with('/')) return (fs::path(folder) / name).string();
  return concat(folder, folder.ends_with('/') ? "" : "/", name);
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
