#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/remote/store.h"
#include "tests/remote/fake_server.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/log.h>
#include <tessera/io/atomic_file.h>

namespace tessera::remote {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

/// Sets environment variables, and restores them at the end. An empty value removes the variable.
class Variables {
 public:
  void set(const std::string& name, const std::string& value) {
    const char* const old = std::getenv(name.c_str());
    before_.try_emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    put(name, value.empty() ? std::nullopt : std::optional(value));
  }
  ~Variables() {
    for (const auto& [name, value] : before_) put(name, value);
  }

 private:
  static void put(const std::string& name, const std::optional<std::string>& value) {
    value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> before_;
};

/// Bytes that differ from place to place.
inline std::string noise(std::size_t size) {
  std::string out(size, '\0');
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * i >> 7 ^ i);
  return out;
}

/// A server with a bucket b, and an environment that leads to it without keys.
class Remote : public FolderTest {
 protected:
  Remote() {
    for (const char* name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE",
          "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_NO_SIGN_REQUEST",
          "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
          "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "GS_ACCESS_KEY_ID",
          "GS_NO_SIGN_REQUEST", "GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"})
      variables_.set(name, "");
    variables_.set("AWS_EC2_METADATA_DISABLED", "true");
    variables_.set("AWS_SHARED_CREDENTIALS_FILE", path("credentials"));
    variables_.set("AWS_CONFIG_FILE", path("config"));
    variables_.set("AWS_ENDPOINT_URL_S3", server_.url());
    variables_.set("STORAGE_EMULATOR_HOST", server_.url());
    variables_.set("GCE_METADATA_HOST", server_.url().substr(7));
    variables_.set("no_proxy", "127.0.0.1");
    log::set_level(log::Level::error);
  }
  ~Remote() override { log::set_level(log::Level::info); }

  void set_keys() {
    variables_.set("AWS_ACCESS_KEY_ID", "key");
    variables_.set("AWS_SECRET_ACCESS_KEY", "secret");
  }

  CacheSettings settings() const {
    CacheSettings out;
    out.folder = config::OutputPath(path("cache"));
    out.retries = 3;
    out.timeout = 60;
    return out;
  }

  /// Adds an object to the bucket b and returns its address.
  std::string object(const std::string& key, std::string bytes) {
    server_.put("/b/" + key, std::move(bytes));
    return "s3://b/" + key;
  }

  Texts files() const {
    Texts out;
    for (const auto& entry : fs::directory_iterator(path("cache/objects")))
      out.push_back(entry.path().filename().string());
    std::ranges::sort(out);
    return out;
  }
  std::uint64_t bytes_in_cache() const {
    std::uint64_t out = 0;
    for (const auto& entry : fs::directory_iterator(path("cache/objects"))) out += entry.file_size();
    return out;
  }

  /// Returns the bytes of an object, read through a new store.
  std::string read(const std::string& address) const {
    Store store(settings());
    return io::read_file(store.open(address).path());
  }

  Variables variables_;
  FakeServer server_;
};

}  // namespace tessera::remote
