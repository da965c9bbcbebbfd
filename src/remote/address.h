#pragma once

#include <string>
#include <string_view>

namespace tessera::remote {

/// The place of an object or, if `key` is empty or ends in /, of a folder: s3://HOST/KEY and gs://HOST/KEY, where HOST is a bucket, or
/// http://HOST/KEY and https://HOST/KEY, where KEY is the rest of the URL as it is written.
struct Address {
  std::string scheme, host, key;

  bool is_bucket() const { return scheme == "s3" || scheme == "gs"; }
};

/// Returns whether the text begins with s3://, gs://, http:// or https://.
bool is_remote(std::string_view text);

/// Throws UserError if the text is not a remote address, or if it names no bucket or host.
Address parse_address(const std::string& text);

/// Returns the last part of the path, without a URL's query: "a.tar" for https://host/x/a.tar?version=2.
std::string file_name(const std::string& address);

/// Writes all bytes but A-Z, a-z, 0-9, -, _, . and ~ as %XX, as AWS's signatures require; / only if `slashes` is true.
std::string percent_encoded(std::string_view text, bool slashes);

}  // namespace tessera::remote
