#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/serving/service.h"

namespace tessera::serving {

/// How the server listens.
struct HttpSettings {
  std::string host = "127.0.0.1";
  int port = 8000;                // 0: a free port
  std::string token;              // the bearer token that requests must have; empty: none
  std::string page;               // the HTML of the page at /
  std::int64_t connections = 2048;  // connections that are served at the same time; further ones wait
  double body_seconds = 30;       // the longest time that a client may take to send a body
  bool access_log = true;         // write one line of JSON to standard output for each request
};

/// Serves a Service over HTTP with cpp-httplib, one thread per connection:
///   POST Service::paths(), GET /v1/models, GET /v1/images/N?model=NAME&side=PIXELS, GET /health, GET /metrics (Prometheus), GET / (the page)
/// Errors have OpenAI's form {"error": {"message", "type", "param", "code"}}.
class HttpServer {
 public:
  HttpServer(std::shared_ptr<const Service> service, HttpSettings settings);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Opens the port, and returns its number. Throws UserError if the port cannot be opened.
  int open();
  /// Answers requests until stop() is called from another thread. Requests that have begun by then are answered.
  void run();
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::serving
