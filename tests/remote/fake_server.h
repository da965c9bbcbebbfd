#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cctype>
#include <functional>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "src/base/digest.h"
#include "src/base/md5.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::remote {

struct ServerRequest {
  std::string method, path, query, body;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string header(const std::string& name) const { return headers.contains(name) ? headers.at(name) : ""; }
  /// The path, and the range if there is one: "/b/a.tar 0-9".
  std::string text() const {
    const std::string range = header("range");
    return method + " " + path + (range.empty() ? "" : " " + range.substr(range.find('=') + 1));
  }
};

struct ServerReply {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  std::optional<std::size_t> cut_after;  // closes the connection after so many bytes of the body
  bool stalls = false;                   // sends the head and then nothing, until the server ends
};

/// A web server on the loopback that holds some objects, counts requests and can be told to fail.
class FakeServer {
 public:
  FakeServer() {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0)
      throw std::runtime_error("no port");
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }

  ~FakeServer() {
    stopped_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string url() const { return concat("http://127.0.0.1:", port_); }

  /// Adds or replaces an object.
  void put(const std::string& path, std::string body) {
    const std::lock_guard lock(mutex_);
    objects_[path] = std::move(body);
  }
  /// Removes all objects.
  void remove_all() {
    const std::lock_guard lock(mutex_);
    objects_.clear();
  }
  /// From now on, `fault` may answer requests in place of the server.
  void answer(std::function<std::optional<ServerReply>(const ServerRequest&)> fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  /// Returns the objects by path.
  std::map<std::string, std::string> objects() {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  /// Returns the number of multipart uploads that are neither complete nor aborted.
  std::size_t uploads() {
    const std::lock_guard lock(mutex_);
    return uploads_.size();
  }
  /// Returns the requests since the last call.
  std::vector<ServerRequest> requests() {
    const std::lock_guard lock(mutex_);
    return std::exchange(requests_, {});
  }
  std::vector<std::string> request_texts() {
    std::vector<std::string> out;
    for (const ServerRequest& request : requests()) out.push_back(request.text());
    return out;
  }

  /// Answers as a store does: objects with their MD5 as ETag, ranges, If-Match, Content-MD5, multipart uploads, listings of buckets in the
  /// path (two keys per page).
  ServerReply usual(const ServerRequest& request) {
    const std::lock_guard lock(mutex_);
    if (request.query.find("list-type=2") != std::string::npos) return listing(request);
    if (const std::string wanted = request.header("content-md5"); !wanted.empty() && base64_decode(wanted) != raw_md5(request.body))
      return {.status = 400, .body = "<Error><Code>BadDigest</Code></Error>"};
    if (request.query.find("upload") != std::string::npos) return multipart(request);
    if (request.method == "PUT") objects_[request.path] = request.body;
    if (request.method == "DELETE") return {.status = objects_.erase(request.path) > 0 ? 204 : 404};
    const auto found = objects_.find(request.path);
    if (found == objects_.end()) return {.status = 404, .body = "<Error><Code>NoSuchKey</Code></Error>"};
    const std::string& body = found->second;
    ServerReply reply{.headers = {{"ETag", "\"" + md5(body) + "\""}, {"x-amz-request-id", "1"}}};
    if (const std::string match = request.header("if-match"); !match.empty() && match != reply.headers["ETag"]) return {.status = 412};
    if (request.method == "PUT") return reply;
    const std::string range = request.header("range");
    reply.body = body;
    if (range.empty()) return reply;
    const std::size_t first = std::stoul(range.substr(range.find('=') + 1)), last = std::stoul(range.substr(range.find('-') + 1));
    reply.status = 206;
    reply.body = body.substr(first, last - first + 1);
    reply.headers["Content-Range"] = concat("bytes ", first, "-", last, "/", body.size());
    return reply;
  }

 private:
  static std::string decoded(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] == '%') {
        out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        out += text[i];
      }
    return out;
  }

  static std::string raw_md5(const std::string& body) {
    const std::string digits = md5(body);
    std::string out;
    for (std::size_t i = 0; i < digits.size(); i += 2) out += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
    return out;
  }

  static std::map<std::string, std::string> parameters_of(const ServerRequest& request) {
    std::map<std::string, std::string> out;
    for (const std::string& each : split(request.query, '&'))
      out[each.substr(0, each.find('='))] = decoded(each.substr(each.find('=') + 1));
    return out;
  }

  ServerReply multipart(const ServerRequest& request) {
    auto parameters = parameters_of(request);
    const std::string id = parameters["uploadId"];
    if (request.method == "GET") {
      std::string out = "<ListMultipartUploadsResult>";
      for (const auto& [each, upload] : uploads_)
        out += concat("<Upload><Key>", upload.path.substr(request.path.size()), "</Key><UploadId>", each, "</UploadId></Upload>");
      return {.body = out + "</ListMultipartUploadsResult>"};
    }
    if (parameters.contains("uploads")) {
      const std::string made = concat("id ", ++last_upload_);
      uploads_[made].path = request.path;
      return {.body = "<Result><UploadId>" + made + "</UploadId></Result>"};
    }
    const auto found = uploads_.find(id);
    if (found == uploads_.end()) return {.status = 404, .body = "<Error><Code>NoSuchUpload</Code></Error>"};
    if (request.method == "PUT") {
      found->second.parts[std::stoi(parameters["partNumber"])] = request.body;
      return {.headers = {{"ETag", "\"" + md5(request.body) + "\""}, {"x-amz-request-id", "1"}}};
    }
    if (request.method == "POST") {
      std::string whole, wanted = "<CompleteMultipartUpload>";
      for (const auto& [number, part] : found->second.parts) {
        whole += part;
        wanted += concat("<Part><PartNumber>", number, "</PartNumber><ETag>\"", md5(part), "\"</ETag></Part>");
      }
      if (request.body != wanted + "</CompleteMultipartUpload>") return {.body = "<Error><Code>InvalidPart</Code></Error>"};
      objects_[found->second.path] = whole;
    }
    uploads_.erase(found);
    return {.body = "<Result/>"};
  }

  ServerReply listing(const ServerRequest& request) const {
    auto parameters = parameters_of(request);
    const bool whole = !parameters.contains("delimiter");
    const std::string begin = request.path + parameters["prefix"], after = parameters["continuation-token"];
    std::string out = "<?xml version=\"1.0\"?><ListBucketResult>";
    int count = 0;
    std::string last;
    bool more = false;
    for (const auto& [path, body] : objects_) {
      if (!path.starts_with(begin) || path <= after || (!whole && path.find('/', begin.size()) != std::string::npos)) continue;
      if (more = count == 2; more) break;
      std::string key = path.substr(request.path.size());
      for (std::size_t at = key.find('&'); at != std::string::npos; at = key.find('&', at + 1)) key.replace(at, 1, "&amp;");
      out += concat("<Contents><Key>", key, "</Key><Size>", body.size(), "</Size><ETag>&quot;", md5(body), "&quot;</ETag></Contents>");
      last = path;
      ++count;
    }
    if (more) out += "<IsTruncated>true</IsTruncated><NextContinuationToken>" + last + "</NextContinuationToken>";
    return {.body = out + "</ListBucketResult>"};
  }

  void accept_all() {
    for (int connection = 0; (connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      const std::lock_guard lock(mutex_);
      connections_.push_back(connection);
      threads_.emplace_back([this, connection] {
        while (serve_one(connection)) {
        }
        const std::lock_guard closing(mutex_);
        std::erase(connections_, connection);
        ::close(connection);
      });
    }
  }

  bool serve_one(int connection) {
    std::string text;
    std::size_t head = 0;
    const auto receive = [&] {
      char block[4096];
      const ssize_t count = ::recv(connection, block, sizeof(block), 0);
      if (count > 0) text.append(block, static_cast<std::size_t>(count));
      return count > 0;
    };
    while ((head = text.find("\r\n\r\n")) == std::string::npos)
      if (!receive()) return false;
    ServerRequest request;
    const std::vector<std::string> lines = split_lines(text.substr(0, head));
    const std::vector<std::string> words = split(lines[0], ' ');
    const std::size_t question = std::min(words[1].find('?'), words[1].size());
    request.method = words[0];
    request.path = decoded(words[1].substr(0, question));
    request.query = words[1].substr(std::min(question + 1, words[1].size()));
    for (std::size_t i = 1; i < lines.size(); ++i) {
      std::string name = lines[i].substr(0, lines[i].find(':'));
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      request.headers[name] = strip(lines[i].substr(name.size() + 1));
    }
    const std::size_t length = request.headers.contains("content-length") ? std::stoul(request.header("content-length")) : 0;
    if (request.header("expect") == "100-continue") send_all(connection, "HTTP/1.1 100 Continue\r\n\r\n");
    while (text.size() < head + 4 + length)
      if (!receive()) return false;
    request.body = text.substr(head + 4, length);
    return answer_one(connection, request);
  }

  bool answer_one(int connection, const ServerRequest& request) {
    std::function<std::optional<ServerReply>(const ServerRequest&)> fault;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      fault = fault_;
    }
    std::optional<ServerReply> reply = fault ? fault(request) : std::nullopt;
    if (!reply) reply = usual(request);
    std::string head = concat("HTTP/1.1 ", reply->status, " Text\r\nContent-Length: ", reply->body.size(), "\r\n");
    for (const auto& [name, value] : reply->headers) head += concat(name, ": ", value, "\r\n");
    if (!send_all(connection, head + "\r\n")) return false;
    if (reply->stalls) {
      char byte = 0;
      return ::recv(connection, &byte, 1, 0) > 0;  // until one of the sides ends the connection
    }
    if (request.method == "HEAD") return true;
    if (!send_all(connection, reply->body.substr(0, reply->cut_after.value_or(reply->body.size())))) return false;
    if (reply->cut_after) ::shutdown(connection, SHUT_RDWR);
    return !reply->cut_after;
  }

  static bool send_all(int connection, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopped_ = false;
  std::thread accepting_;
  std::mutex mutex_;  // guards the members below
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
  struct Upload {
    std::string path;
    std::map<int, std::string> parts;
  };
  std::map<std::string, std::string> objects_;
  std::map<std::string, Upload> uploads_;
  int last_upload_ = 0;
  std::function<std::optional<ServerReply>(const ServerRequest&)> fault_;
  std::vector<ServerRequest> requests_;
};

}  // namespace tessera::remote
