#include "src/remote/hub.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::remote::hub {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_on(const char* name) {
  const std::string value = environment(name);
  return std::ranges::any_of(std::array{"1", "ON", "YES", "TRUE", "on", "yes", "true", "On", "Yes", "True"},
                             [&](const char* each) { return value == each; });
}

std::string token_file() {
  if (const std::string named = environment("HF_TOKEN_PATH"); !named.empty()) return named;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return home + "/token";
  if (const std::string caches = environment("XDG_CACHE_HOME"); !caches.empty()) return caches + "/huggingface/token";
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface/token";
}

// Returns a member of an object; empty if there is no such text.
std::string text_in(const Json& json, const char* name) {
  if (!json.is_object()) return {};
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Returns the URL of the API that names the repository.
std::string api_name(const Address& address) {
  const bool has_kind = address.host.starts_with("datasets/") || address.host.starts_with("spaces/");
  return concat(endpoint(), "/api/", has_kind ? "" : "models/", percent_encoded(address.host, false));
}

std::string repository(const Address& address) {
  return "hf://" + address.host;
}

}  // namespace

std::string endpoint() {
  std::string out = environment("HF_ENDPOINT");
  while (out.ends_with('/')) out.pop_back();
  return out.empty() ? "https://huggingface.co" : out;
}

std::string token() {
  if (const std::string given(strip(environment("HF_TOKEN"))); !given.empty()) return given;
  const std::string file = token_file();
  std::error_code ignored;
  return !file.empty() && fs::is_regular_file(file, ignored) ? std::string(strip(io::read_file(file))) : "";
}

bool is_offline() {
  return is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE");
}

bool is_commit(const std::string& revision) {
  return revision.size() == 40 && revision.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string parse_commit(const std::string& json) {
  const std::string commit = text_in(Json::parse(json, nullptr, false), "sha");
  return is_commit(commit) ? commit : "";
}

std::string file_url(const Address& address, const std::string& commit) {
  return concat(endpoint(), "/", percent_encoded(address.host, false), "/resolve/", commit, "/", percent_encoded(address.key, false));
}

std::string revision_url(const Address& address) {
  return concat(api_name(address), "/revision/", percent_encoded(address.revision, true));
}

std::string tree_url(const Address& folder, const std::string& commit) {
  std::string key = folder.key;
  while (key.ends_with('/')) key.pop_back();
  return concat(api_name(folder), "/tree/", commit, key.empty() ? "" : "/", percent_encoded(key, false));
}

std::string next_page(const HttpReply& reply, const std::string& url) {
  for (const std::string& link : split(reply.header("link"), ',')) {
    const std::size_t query = link.find('?'), end = link.find('>');
    if (link.find("rel=\"next\"") != std::string::npos && query < end)
      return url.substr(0, url.find('?')) + link.substr(query, end - query);
  }
  return {};
}

bool says_no_folder(const HttpReply& reply) {
  const std::string code = reply.header("x-error-code");
  return reply.problem.empty() && reply.status == 404 && (code.empty() || code == "EntryNotFound");
}

Files parse_tree(const std::string& json, const std::string& url) {
  const Json page = Json::parse(json, nullptr, false);
  if (!page.is_array()) user_error(url, ": expected a list of files, got ", printable(json, 60));
  Files out;
  for (const Json& item : page) {
    if (text_in(item, "type") != "file") continue;
    const auto large = item.find("lfs"), size = item.find("size");
    const bool is_large = large != item.end() && large->is_object();
    if (size == item.end() || !size->is_number_unsigned()) user_error(url, ": expected the size of ", printable(text_in(item, "path")));
    out.emplace_back(text_in(item, "path"), ObjectState{size->get<std::uint64_t>(), text_in(is_large ? *large : item, "oid")});
  }
  return out;
}

void fail(const std::string& address, const HttpReply& reply) {
  const Address parts = parse_address(address);
  const std::string code = reply.header("x-error-code"), name = repository(parts);
  if (!reply.problem.empty()) user_error(address, ": ", printable(reply.problem));
  const std::string message = reply.header("x-error-message");
  if (code == "GatedRepo")
    user_error(name, ": is gated: accept its conditions at ", endpoint(), "/", parts.host,
               ", and set HF_TOKEN to a token of that account that may read it");
  if (code == "RevisionNotFound") user_error(name, ": has no branch, tag or commit ", printable(parts.revision));
  if (reply.status == 401 || code == "RepoNotFound")
    user_error(name, token().empty() ? ": does not exist, or is private: check the name, or set HF_TOKEN to a token that may read it"
                                     : ": does not exist, or your token (HF_TOKEN, or the file that hf auth login wrote) may not read it");
  if (reply.status == 403)
    user_error(address, ": access is denied (HTTP 403", message.empty() ? "" : ": ", printable(message),
               "): set HF_TOKEN to a token that may read it");
  if (reply.status == 404 || reply.status == 410)
    throw MissingObject(concat(address, ": there is no such file or folder (revision ", printable(parts.revision), ")"));
  user_error(address, ": HTTP ", reply.status, message.empty() ? "" : ": ", printable(message));
}

std::string Descriptions::path_of(const std::string& key) const {
  return concat(folder_, "/", hexadecimal(fingerprint(key)), hexadecimal(fingerprint(key, 1)), ".json");
}

std::string Descriptions::commit(const Address& address) const {
  const std::string path = path_of(address.host + "@" + address.revision);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const std::string out = text_in(Json::parse(io::read_file(path), nullptr, false), "commit");
  return is_commit(out) ? out : "";
}

void Descriptions::keep_commit(const Address& address, const std::string& commit) const {
  io::write_file(path_of(address.host + "@" + address.revision),
                 Json{{"repository", address.host}, {"revision", address.revision}, {"commit", commit}}.dump());
}

std::optional<Files> Descriptions::files(const Address& folder, const std::string& commit) const {
  const std::string path = path_of(concat(folder.host, "@", commit, "/", folder.key));
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const Json json = Json::parse(io::read_file(path), nullptr, false);
  try {
    Files out;
    for (const Json& each : json.at("files")) out.emplace_back(each.at(0), ObjectState{each.at(1), each.at(2)});
    return out;
  } catch (const Json::exception&) {
    return std::nullopt;  // damaged, so the server is asked again
  }
}

void Descriptions::keep_files(const Address& folder, const std::string& commit, const Files& files) const {
  Json list = Json::array();
  for (const auto& [path, state] : files) list.push_back({path, state.size, state.version});
  io::write_file(path_of(concat(folder.host, "@", commit, "/", folder.key)),
                 Json{{"repository", folder.host}, {"commit", commit}, {"folder", folder.key}, {"files", list}}.dump());
}

}  // namespace tessera::remote::hub
