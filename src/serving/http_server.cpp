#include "src/serving/http_server.h"

#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <mutex>

#include <httplib.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "src/base/clock.h"
#include "src/base/dump_utf8.h"
#include "src/ops/one_thread.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera::serving {
namespace {

using nlohmann::json;

constexpr int kBacklog = 1024;            // connections that wait for a thread; cpp-httplib's own 5 would refuse many clients at once
constexpr std::int64_t kLargestSide = 1024;  // pixels of /v1/images
constexpr std::int64_t kBodiesAtOnce = 16;   // bodies of the largest size that may be in memory

const prometheus::Histogram::BucketBoundaries kSeconds = {0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10};
const prometheus::Histogram::BucketBoundaries kSizes = {1, 2, 4, 8, 16, 32, 64, 128, 256};

std::string error_text(const std::string& message, const std::string& type, const std::string& param, const std::string& code) {
  return dump_utf8(json{{"error",
                         {{"message", message},
                          {"type", type},
                          {"param", param.empty() ? json(nullptr) : json(param)},
                          {"code", code.empty() ? json(nullptr) : json(code)}}}});
}

/// Compares two texts in a time that does not depend on where they differ.
bool equal_secrets(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace

struct HttpServer::Impl {
  Impl(std::shared_ptr<const Service> shared, HttpSettings chosen) : service(std::move(shared)), settings(std::move(chosen)) {
    server.new_task_queue = [threads = static_cast<std::size_t>(settings.connections)] { return new httplib::ThreadPool(threads); };
    server.set_tcp_nodelay(true);
    server.set_keep_alive_max_count(1'000'000);
    server.set_keep_alive_timeout(5);
    server.set_read_timeout(5);
    server.set_write_timeout(10);
    server.set_payload_max_length(static_cast<std::size_t>(service->limits().body_bytes));
    server.set_socket_options([this](int socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      listening = socket;
    });
    for (const std::string& path : Service::paths())
      server.Post(path, [this, path](const auto& request, auto& response, const httplib::ContentReader& reader) {
        if (!allowed(request)) discard(reader);
        answer(request, response, path, [&] { return service->post(path, body_of(request, reader)); });
      });
    get("/v1/models", [this](const httplib::Request&) { return service->models(); });
    server.Get(R"(/v1/images/(\d{1,12}))", [this](const auto& request, auto& response) {
      answer(request, response, "/v1/images", [&] { return image(request); }, "image/jpeg");
    });
    server.Get("/health", [](const auto&, auto& response) { response.set_content(R"({"status":"ok"})", "application/json"); });
    server.Get("/metrics", [this](const auto& request, auto& response) {
      answer(request, response, "/metrics", [&] { return metrics(); }, "text/plain; version=0.0.4");
    });
    server.Get("/", [this](const auto&, auto& response) {
      response.set_header("Content-Security-Policy",
                          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src 'self' blob: data:; "
                          "connect-src 'self'; frame-ancestors 'none'");
      response.set_content(settings.page, "text/html; charset=utf-8");
    });
    server.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      const bool unknown = response.status == 404;
      response.set_content(error_text(unknown ? concat("there is no ", request.method, " ", request.path) : "the request is not valid HTTP",
                                      "invalid_request_error", "", ""),
                           "application/json");
    });
    for (const auto& served : service->list())
      served->thread.on_batch = [this, &embedder = served->embedder](std::int64_t items, bool images) {
        (images ? image_batches : text_batches).Observe(static_cast<double>(items));
        if (!images) cut_texts.Increment(static_cast<double>(embedder.take_cut_texts()));
      };
  }

  void get(const std::string& path, const std::function<std::string(const httplib::Request&)>& content) {
    server.Get(path, [this, path, content](const auto& request, auto& response) {
      answer(request, response, path, [&] { return content(request); });
    });
  }

  /// Reads a body that nobody wants. Otherwise its bytes would be taken for the connection's next request, and a client that is still
  /// sending would not see the answer.
  static void discard(const httplib::ContentReader& reader) {
    reader([](const char*, std::size_t) { return true; });
  }

  /// Reads a body. The sum of all bodies in memory is bounded, and so is the time that a client may take.
  std::string body_of(const httplib::Request& request, const httplib::ContentReader& reader) {
    if (!request.get_header_value("Content-Type").starts_with("application/json")) {
      discard(reader);
      throw RequestError(415, "", "the header Content-Type must be application/json");
    }
    const double begun = steady_seconds();
    const std::int64_t most = service->limits().body_bytes;
    const RequestError too_large(413, "", concat("the body is larger than ", with_thousands(most), " bytes"));
    if (const auto length = request.get_header_value<std::uint64_t>("Content-Length"); length > static_cast<std::uint64_t>(most)) {
      if (length / 4 <= static_cast<std::uint64_t>(most)) discard(reader);
      throw too_large;
    }
    std::string body;
    struct Counted {
      std::atomic<std::int64_t>& sum;
      std::int64_t own = 0;
      ~Counted() { sum -= own; }
    } counted{body_bytes};
    bool slow = false, large = false, full = false;
    const bool whole = reader([&](const char* data, std::size_t size) {
      const auto bytes = static_cast<std::int64_t>(size);
      slow = steady_seconds() - begun > settings.body_seconds;
      large = std::ssize(body) + bytes > most;
      full = (body_bytes += bytes) > kBodiesAtOnce * most;
      counted.own += bytes;
      if (slow || large || full) return false;
      body.append(data, size);
      return true;
    });
    if (slow) throw RequestError(408, "", concat("the body did not arrive within ", settings.body_seconds, " seconds"));
    if (full) throw Busy("the server is receiving too many large bodies: try again in a moment");
    if (large) throw too_large;
    if (!whole) throw RequestError(400, "", "the body is incomplete");
    return body;
  }

  std::string image(const httplib::Request& request) const {
    const auto number = [&](const std::string& text, std::int64_t usual, std::int64_t most) -> std::int64_t {
      if (text.empty()) return usual;
      if (text.size() > 12 || text.find_first_not_of("0123456789") != std::string::npos) throw RequestError(400, "side", "side: expected a number");
      return std::clamp<std::int64_t>(std::stoll(text), 0, most);
    };
    const std::string& first = service->list().front()->name;
    return service->image(request.has_param("model") ? request.get_param_value("model") : first,
                          number(request.matches[1], 0, INT64_MAX),
                          std::max<std::int64_t>(1, number(request.get_param_value("side"), 256, kLargestSide)));
  }

  std::string metrics() {
    waiting.Set(static_cast<double>(service->waiting()));
    return prometheus::TextSerializer().Serialize(registry.Collect());
  }

  bool allowed(const httplib::Request& request) const {
    return settings.token.empty() || equal_secrets(request.get_header_value("Authorization"), "Bearer " + settings.token);
  }

  /// Calls `content`, and turns what it throws into an error of OpenAI's form. `path` names the request in the metrics.
  template <class Content>
  void answer(const httplib::Request& request, httplib::Response& response, const std::string& path, const Content& content,
              const char* type = "application/json") {
    stay_on_this_thread();  // because there are many connections
    const double begun = steady_seconds();
    const auto fail = [&](int status, const std::string& message, const std::string& kind, const std::string& param = "",
                          const std::string& code = "") {
      response.status = status;
      response.set_content(error_text(message, kind, param, code), "application/json");
    };
    try {
      if (allowed(request)) {
        response.set_content(content(), type);
        response.status = 200;
      } else {
        response.set_header("WWW-Authenticate", "Bearer");
        fail(401, "the request needs the header Authorization: Bearer TOKEN with the token of this server", "invalid_request_error", "",
             "invalid_api_key");
      }
    } catch (const RequestError& error) {
      fail(error.status(), error.what(), "invalid_request_error", error.param(), error.status() == 404 ? "not_found" : "");
    } catch (const Busy& error) {
      response.set_header("Retry-After", "1");
      fail(429, error.what(), "rate_limit_error", "", "rate_limit_exceeded");
    } catch (const UserError& error) {
      fail(400, error.what(), "invalid_request_error");
    } catch (const std::bad_alloc&) {
      fail(503, "the server has too little memory for this request", "server_error");
    } catch (const std::exception& error) {
      log::error(path, ": ", error.what());
      fail(500, "internal error: the server's log has the reason", "server_error");
    }
    const double seconds = steady_seconds() - begun;
    durations.Add({{"path", path}}, kSeconds).Observe(seconds);
    requests.Add({{"path", path}, {"status", std::to_string(response.status)}}).Increment();
    if (settings.access_log) log_request(request, response, path, seconds);
  }

  void log_request(const httplib::Request& request, const httplib::Response& response, const std::string& path, double seconds) {
    const json line = {{"time", utc_now("%Y-%m-%dT%H:%M:%SZ")},     {"client", request.remote_addr},
                       {"method", request.method},                  {"path", path},
                       {"status", response.status},                 {"bytes", response.body.size()},
                       {"milliseconds", std::round(seconds * 1e5) / 100}};
    const std::lock_guard lock(log_mutex);
    std::cout << dump_utf8(line) << std::endl;
  }

  std::shared_ptr<const Service> service;
  const HttpSettings settings;
  httplib::Server server;
  int listening = -1;
  std::atomic<std::int64_t> body_bytes = 0;
  std::mutex log_mutex;

  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter().Name("tessera_requests_total").Help("answered requests").Register(registry);
  prometheus::Family<prometheus::Histogram>& durations =
      prometheus::BuildHistogram().Name("tessera_request_seconds").Help("seconds from a request's headers to its answer").Register(registry);
  prometheus::Family<prometheus::Histogram>& batches =
      prometheus::BuildHistogram().Name("tessera_batch_size").Help("images or texts of a batch").Register(registry);
  prometheus::Histogram& image_batches = batches.Add({{"kind", "image"}}, kSizes);
  prometheus::Histogram& text_batches = batches.Add({{"kind", "text"}}, kSizes);
  prometheus::Counter& cut_texts = prometheus::BuildCounter()
                                       .Name("tessera_cut_texts_total")
                                       .Help("texts that were longer than the model's context")
                                       .Register(registry)
                                       .Add({});
  prometheus::Gauge& waiting =
      prometheus::BuildGauge().Name("tessera_waiting").Help("images and texts that wait for the model").Register(registry).Add({});
};

HttpServer::HttpServer(std::shared_ptr<const Service> service, HttpSettings settings)
    : impl_(std::make_unique<Impl>(std::move(service), std::move(settings))) {}

HttpServer::~HttpServer() {
  for (const auto& served : impl_->service->list()) served->thread.on_batch = nullptr;
}

int HttpServer::open() {
  const HttpSettings& settings = impl_->settings;
  int port = settings.port;
  errno = 0;
  if (port == 0)
    port = impl_->server.bind_to_any_port(settings.host);
  else if (!impl_->server.bind_to_port(settings.host, port))
    port = -1;
  if (port < 0) user_error("--port ", settings.port, ": cannot listen on ", settings.host, ": ", errno == 0 ? "no such address" : std::strerror(errno));
  ::listen(impl_->listening, kBacklog);
  return port;
}

void HttpServer::run() { impl_->server.listen_after_bind(); }

void HttpServer::stop() { impl_->server.stop(); }

}  // namespace tessera::serving
