#include "src/remote/http.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "src/base/digest.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#ifdef TESSERA_WITH_CURL
#include <curl/curl.h>
#endif

namespace tessera::remote {

#ifndef TESSERA_WITH_CURL

HttpReply send(const HttpRequest& request) {
  user_error(request.url,
             ": this build of Tessera cannot read remote addresses: install libcurl4-openssl-dev and build it again, or copy the files");
}

void load_http() {}

#else

namespace {

constexpr std::size_t kLongestBody = 16 << 20;
constexpr unsigned kFirstThatSigns = 0x075800;  // 7.88: older versions do not sign requests to s3 as it expects

/// The functions of libcurl. The library is loaded only when it is needed, because it brings twenty other libraries, and programs and
/// Python packages should start without it.
struct Curl {
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_reset) easy_reset = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
  unsigned version = 0;

  Curl() {
    void* library = nullptr;
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"})
      if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) user_error("libcurl.so.4 cannot be loaded, which reads remote addresses: install libcurl4");
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      if (function == nullptr) user_error("libcurl.so.4 has no function ", name);
    };
    find("curl_easy_init", easy_init);
    find("curl_easy_reset", easy_reset);
    find("curl_easy_setopt", easy_setopt);
    find("curl_easy_perform", easy_perform);
    find("curl_easy_strerror", easy_strerror);
    find("curl_slist_append", slist_append);
    find("curl_slist_free_all", slist_free_all);
    decltype(&::curl_global_init) global_init = nullptr;
    decltype(&::curl_version_info) version_info = nullptr;
    find("curl_global_init", global_init);
    find("curl_version_info", version_info);
    global_init(CURL_GLOBAL_DEFAULT);
    version = version_info(CURLVERSION_NOW)->version_num;
  }
};

const Curl& curl() {
  static const Curl loaded;
  return loaded;
}

/// A handle and its open connections, which go back to a common stock when the object is destroyed.
class Handle {
 public:
  Handle() {
    {
      const std::lock_guard lock(mutex());
      if (!stock().empty()) {
        handle_ = stock().back();
        stock().pop_back();
      }
    }
    if (handle_ == nullptr) handle_ = curl().easy_init();
    if (handle_ == nullptr) user_error("libcurl cannot be started");
  }
  ~Handle() {
    curl().easy_reset(handle_);
    const std::lock_guard lock(mutex());
    stock().push_back(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  template <class Value>
  void set(CURLoption option, Value value) {
    curl().easy_setopt(handle_, option, value);
  }
  CURLcode perform() { return curl().easy_perform(handle_); }

 private:
  // The stock is never destroyed, because threads may still use handles when the program ends.
  static std::mutex& mutex() {
    static auto* const made = new std::mutex;
    return *made;
  }
  static std::vector<CURL*>& stock() {
    static auto* const made = new std::vector<CURL*>;
    return *made;
  }
  CURL* handle_ = nullptr;
};

struct Transfer {
  const HttpRequest& request;
  HttpReply reply;
  std::uint64_t taken = 0;  // bytes that the sink has taken
  std::size_t sent = 0;     // bytes of the body
};

std::size_t take_header(char* bytes, std::size_t one, std::size_t size, void* transfer) {
  HttpReply& reply = static_cast<Transfer*>(transfer)->reply;
  const std::string_view line = strip(std::string_view(bytes, one * size));
  if (line.starts_with("HTTP/")) {  // of several replies (a redirect, "100 Continue") the last one counts
    // The Hugging Face Hub describes a file before it leads to another server.
    std::erase_if(reply.headers, [](const auto& header) { return !header.first.starts_with("x-linked-"); });
    reply.status = std::atol(std::string(line.substr(std::min(line.find(' '), line.size()))).c_str());
  } else if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    reply.headers[name] = strip(line.substr(colon + 1));
  }
  return one * size;
}

std::size_t take_body(char* bytes, std::size_t one, std::size_t size, void* transfer) {
  auto& [request, reply, taken, sent] = *static_cast<Transfer*>(transfer);
  const std::size_t count = one * size;
  if (request.sink && reply.status >= 200 && reply.status < 300)
    return request.sink(std::exchange(taken, taken + count), bytes, count) ? count : 0;
  if (reply.body.size() + count > kLongestBody) return 0;
  reply.body.append(bytes, count);
  return count;
}

std::size_t give_body(char* bytes, std::size_t one, std::size_t size, void* transfer) {
  auto& [request, reply, taken, sent] = *static_cast<Transfer*>(transfer);
  const std::size_t count = request.body->copy(bytes, one * size, sent);
  sent += count;
  return count;
}

// Called if libcurl must send the body again, for example because the server has closed a connection that was kept.
int rewind_body(void* transfer, curl_off_t offset, int /*origin*/) {
  static_cast<Transfer*>(transfer)->sent = static_cast<std::size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

int check_stop(void* transfer, curl_off_t /*to_get*/, curl_off_t /*got*/, curl_off_t /*to_send*/, curl_off_t /*sent*/) {
  const HttpRequest& request = static_cast<Transfer*>(transfer)->request;
  return request.stop != nullptr && *request.stop ? 1 : 0;
}

// Returns the file with the certificates to trust that the environment names; empty: the system's.
std::string certificates() {
  for (const char* name : {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return {};
}

void sign(Handle& handle, const Signing& keys) {
  if (curl().version < kFirstThatSigns) user_error("this machine's libcurl is too old to sign requests: install libcurl 7.88 or newer");
  handle.set(CURLOPT_AWS_SIGV4, concat("aws:amz:", keys.region, ":s3").c_str());
  handle.set(CURLOPT_USERNAME, keys.id.c_str());
  handle.set(CURLOPT_PASSWORD, keys.secret.c_str());
}

// Returns the request's headers, and those that its signature needs.
std::vector<std::string> headers_of(const HttpRequest& request) {
  std::vector<std::string> out = request.headers;
  if (!request.signing) return out;
  // libcurl 7.88 would sign the host without its port.
  const std::size_t begin = request.url.find("://") + 3;
  out.push_back("Host: " + request.url.substr(begin, request.url.find('/', begin) - begin));
  // libcurl 7.88 does not add this header, which stores want. It signs the value, whose form is the same in later versions.
  out.push_back(request.body ? "x-amz-content-sha256: UNSIGNED-PAYLOAD" : "x-amz-content-sha256: " + sha256(""));
  if (!request.signing->token.empty()) out.push_back("x-amz-security-token: " + request.signing->token);
  return out;
}

bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_WRITE_ERROR:
      return false;
    default:
      return true;
  }
}

}  // namespace

void load_http() {
  curl();
}

HttpReply send(const HttpRequest& request) {
  Handle handle;
  Transfer transfer{request, {}};
  std::string detail(CURL_ERROR_SIZE, '\0');
  std::unique_ptr<curl_slist, decltype(&::curl_slist_free_all)> list(nullptr, curl().slist_free_all);
  for (const std::string& header : headers_of(request)) list.reset(curl().slist_append(list.release(), header.c_str()));

  handle.set(CURLOPT_URL, request.url.c_str());
  handle.set(CURLOPT_PATH_AS_IS, 1L);  // a key may contain /../
  handle.set(CURLOPT_PROTOCOLS_STR, "http,https");
  handle.set(CURLOPT_HTTPHEADER, list.get());
  handle.set(CURLOPT_ERRORBUFFER, detail.data());
  handle.set(CURLOPT_NOSIGNAL, 1L);
  handle.set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(1000 * request.connect_timeout));
  handle.set(CURLOPT_LOW_SPEED_LIMIT, 1024L);
  handle.set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(request.timeout)));
  handle.set(CURLOPT_BUFFERSIZE, 256L << 10);
  handle.set(CURLOPT_HEADERFUNCTION, take_header);
  handle.set(CURLOPT_HEADERDATA, &transfer);
  handle.set(CURLOPT_WRITEFUNCTION, take_body);
  handle.set(CURLOPT_WRITEDATA, &transfer);
  handle.set(CURLOPT_NOPROGRESS, 0L);
  handle.set(CURLOPT_XFERINFOFUNCTION, check_stop);
  handle.set(CURLOPT_XFERINFODATA, &transfer);
  if (const std::string file = certificates(); !file.empty()) handle.set(CURLOPT_CAINFO, file.c_str());
  if (request.signing) {
    sign(handle, *request.signing);
  } else {
    handle.set(CURLOPT_FOLLOWLOCATION, 1L);
    handle.set(CURLOPT_MAXREDIRS, 8L);
  }
  if (request.body) {
    handle.set(CURLOPT_UPLOAD, 1L);
    handle.set(CURLOPT_READFUNCTION, give_body);
    handle.set(CURLOPT_READDATA, &transfer);
    handle.set(CURLOPT_SEEKFUNCTION, rewind_body);
    handle.set(CURLOPT_SEEKDATA, &transfer);
    handle.set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body->size()));
  }
  if (request.method == "HEAD") handle.set(CURLOPT_NOBODY, 1L);
  if (request.method != "GET" && request.method != "HEAD") handle.set(CURLOPT_CUSTOMREQUEST, request.method.c_str());

  const CURLcode code = handle.perform();
  HttpReply& reply = transfer.reply;
  if (code == CURLE_OK) return std::move(reply);
  detail.resize(std::strlen(detail.c_str()));
  reply.problem = strip(detail.empty() ? std::string_view(curl().easy_strerror(code)) : detail);
  reply.may_pass = may_pass(code);
  return std::move(reply);
}

#endif

}  // namespace tessera::remote
