#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::remote {

/// Keys with which a request is signed (AWS Signature Version 4, service s3).
struct Signing {
  std::string id, secret, token, region;  // token: of temporary keys; otherwise empty
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;                   // with all special characters encoded and, if the request is signed, with sorted query parameters
  std::vector<std::string> headers;  // "Name: value"
  std::optional<Signing> signing;    // nullopt: not signed; redirects are then followed
  std::optional<std::string_view> body;  // the bytes must outlive the request
  // takes the next bytes of a successful reply's body, after its first `offset` bytes; false ends the transfer
  std::function<bool(std::uint64_t offset, const char* bytes, std::size_t size)> sink;
  double connect_timeout = 20;              // seconds
  double timeout = 30;                      // seconds with less than 1 KiB/s after which the transfer fails
  const std::atomic<bool>* stop = nullptr;  // the transfer fails soon after this becomes true
};

struct HttpReply {
  long status = 0;                             // 0: there was no reply
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // if there is no sink, or the reply is no success; at most 16 MiB
  std::string problem;                         // why the transfer failed; empty if the reply is complete
  bool may_pass = false;                       // whether the same request may succeed later, if there is a problem

  bool ok() const { return problem.empty() && status >= 200 && status < 300; }
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

/// Sends a request with libcurl, which is loaded at the first call. Connections are kept and used again, by any thread. Throws UserError if
/// libcurl is missing or cannot sign.
HttpReply send(const HttpRequest& request);

/// Loads libcurl now, as send() does. Functions that are given to std::atexit() afterwards run before libcurl's TLS library is cleaned up.
void load_http();

}  // namespace tessera::remote
