#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::remote {

/// The place of an object or, if `key` is empty or ends in /, of a folder:
///  - s3://HOST/KEY and gs://HOST/KEY, where HOST is a bucket;
///  - hf://HOST@REVISION/KEY, where HOST is a repository of the Hugging Face Hub: OWNER/NAME for a model, datasets/OWNER/NAME or
///    spaces/OWNER/NAME. The revision is a branch, a tag or a commit, "main" if it is not written. %2F stands for a / in it, except in
///    refs/pr/N and refs/convert/NAME. These are the names of huggingface_hub's HfFileSystem;
///  - http://HOST/KEY and https://HOST/KEY, where KEY is the rest of the URL as it is written.
struct Address {
  std::string scheme, host, key, revision = {};

  bool is_bucket() const { return scheme == "s3" || scheme == "gs"; }
  bool is_hub() const { return scheme == "hf"; }
  /// Returns whether the place's folders can be listed.
  bool has_folders() const { return is_bucket() || is_hub(); }
};

/// Returns whether the text begins with s3://, gs://, hf://, http:// or https://.
bool is_remote(std::string_view text);

/// Throws UserError if the text is not a remote address, or if it names no bucket, repository or host.
Address parse_address(const std::string& text);

/// Returns the last part of the path, without a URL's query: "a.tar" for https://host/x/a.tar?version=2 and for the local name x/a.tar.
std::string file_name(const std::string& name);

/// Returns the folder of a file, remote or local: "s3://b/x" for s3://b/x/a.csv, "" for a.csv.
std::string folder_of(const std::string& name);

/// Returns the name of a file that is named relative to a folder. The file's name stays as it is if it is remote or absolute.
std::string joined(const std::string& folder, const std::string& name);

/// Consecutive bytes of an object; all its bytes if `size` is 0.
struct Piece {
  Piece(std::string object, std::uint64_t from = 0, std::uint64_t bytes = 0)  // NOLINT: an object is a piece of itself
      : address(std::move(object)), first(from), size(bytes) {}
  Piece(const char* object) : Piece(std::string(object)) {}  // NOLINT
  std::string address;
  std::uint64_t first, size;

  bool is_whole() const { return size == 0; }
  auto operator<=>(const Piece&) const = default;
};

/// Writes all bytes but A-Z, a-z, 0-9, -, _, . and ~ as %XX, as AWS's signatures require; / only if `slashes` is true.
std::string percent_encoded(std::string_view text, bool slashes);

}  // namespace tessera::remote
