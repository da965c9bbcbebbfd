#include "src/remote/client.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <random>

#include "src/base/digest.h"
#include "src/base/in_threads.h"
#include "src/base/md5.h"
#include "src/base/printable.h"
#include "src/remote/cache.h"
#include "src/remote/hub.h"
#include "src/io/mapped_file.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::remote {
namespace {

constexpr double kFirstPause = 0.03, kLongestPause = 20, kLongestRetryAfter = 60;  // seconds
constexpr std::int64_t kRetriesTold = 10;
constexpr std::uint64_t kRange = 8 << 20;  // bytes of one request that reads
constexpr std::uint64_t kLargestSmall = std::uint64_t{1} << 30;
constexpr int kAttempts = 3;               // at fetching an object whose bytes are wrong
// S3's limits for uploads.
constexpr std::uint64_t kUploadPart = 16 << 20, kLargestPut = std::uint64_t{5} << 30, kMostParts = 10'000;

std::string between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t first = text.find(begin);
  if (first == std::string_view::npos) return {};
  const std::size_t from = first + begin.size(), last = text.find(end, from);
  return last == std::string_view::npos ? "" : std::string(text.substr(from, last - from));
}

// Returns the text of an XML element, with its entities replaced.
std::string element(std::string_view xml, const std::string& name) {
  using Entity = std::pair<std::string_view, char>;
  constexpr std::array entities{Entity("&lt;", '<'),    Entity("&gt;", '>'),  Entity("&amp;", '&'), Entity("&quot;", '"'),
                                Entity("&apos;", '\''), Entity("&#34;", '"'), Entity("&#39;", '\'')};
  const std::string text = between(xml, "<" + name + ">", "</" + name + ">");
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto found =
        std::ranges::find_if(entities, [&](const Entity& entity) { return text.compare(i, entity.first.size(), entity.first) == 0; });
    out += found == entities.end() ? text[i] : found->second;
    i += found == entities.end() ? 1 : found->first.size();
  }
  return out;
}

// Returns the contents of all elements of a name, which contain other elements.
std::vector<std::string> elements(const std::string& xml, const std::string& name) {
  std::vector<std::string> out;
  const std::string begin = "<" + name + ">", end = "</" + name + ">";
  for (std::size_t at = xml.find(begin), last = 0; at != std::string::npos; at = xml.find(begin, last)) {
    last = std::min(xml.find(end, at), xml.size());
    out.push_back(xml.substr(at + begin.size(), last - at - begin.size()));
  }
  return out;
}

std::string without_quotes(std::string text) {
  std::erase(text, '"');
  return text;
}

std::uint64_t number(const std::string& text) {
  return std::strtoull(text.c_str(), nullptr, 10);
}

std::string version_of(const HttpReply& reply) {
  const std::string tag = without_quotes(reply.header("etag"));
  return tag.empty() ? reply.header("last-modified") : tag;
}

bool is_digest(const std::string& tag, std::size_t digits) {
  return tag.size() == digits && tag.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_sha256(const std::string& tag) {
  return is_digest(tag, 64);
}

// Returns the ETag if it is the MD5 of the object's bytes. S3-like stores use the MD5 unless the object was uploaded in parts, or is
// encrypted with keys other than the store's own. Other servers may use any text.
std::string md5_of(const Address& address, const HttpReply& reply) {
  const std::string tag = without_quotes(reply.header("etag")), encrypted = reply.header("x-amz-server-side-encryption");
  const bool is_store = address.is_bucket() || !reply.header("x-amz-request-id").empty();
  const bool own_keys =
      (encrypted.empty() || encrypted == "AES256") && reply.header("x-amz-server-side-encryption-customer-algorithm").empty();
  return is_store && own_keys && is_digest(tag, 32) ? tag : "";
}

bool may_pass(const HttpReply& reply) {
  if (!reply.problem.empty()) return reply.may_pass;
  constexpr std::array passing{408L, 429L, 500L, 502L, 503L, 504L};
  return contains(passing, reply.status) || element(reply.body, "Code") == "BadDigest";
}

// Returns the 16 bytes of an MD5.
std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

// Returns the ETag of an object whose parts have these ETags; empty if they are no MD5s.
std::string tag_of_parts(const std::vector<std::string>& tags) {
  std::string all;
  for (const std::string& tag : tags) {
    if (!is_digest(tag, 32)) return {};
    all += bytes_of(tag);
  }
  return concat(md5(all), "-", tags.size());
}

// Returns an address http:// or https:// with %XX in place of bytes that a URL cannot have. The names of a table's images may have spaces.
std::string url_of(const std::string& address) {
  std::string out;
  for (const char& c : address) out += c > ' ' && c <= '~' ? std::string(1, c) : percent_encoded({&c, 1}, true);
  return out;
}

std::string host_of(const HttpRequest& request) {
  return between(request.url + "/", "://", "/");
}

// Describes a failure: "connection refused", "HTTP 403 AccessDenied: Access Denied".
std::string describe(const HttpReply& reply) {
  if (!reply.problem.empty()) return printable(reply.problem);
  std::string out = concat("HTTP ", reply.status);
  if (const std::string code = element(reply.body, "Code"); !code.empty()) out += " " + code;
  if (const std::string message = element(reply.body, "Message"); !message.empty()) out += ": " + message;
  return printable(out);
}

[[noreturn]] void refuse_changed(const std::string& address) {
  user_error(address, ": has changed since this process first saw it: start again, and write changed data under new names");
}

// Throws the error of a reply that is no success.
[[noreturn]] void fail(const std::string& address, const HttpReply& reply) {
  if (parse_address(address).is_hub()) hub::fail(address, reply);
  const std::string what = describe(reply), scheme = parse_address(address).scheme, code = element(reply.body, "Code");
  const bool is_bucket = parse_address(address).is_bucket();
  if (reply.problem.empty() && (reply.status == 404 || reply.status == 410)) {
    if (code == "NoSuchBucket") user_error(address, ": there is no such bucket");
    if (is_bucket) throw MissingObject(address + ": there is no such object");
    throw MissingObject(concat(address, ": there is no such file (HTTP ", reply.status, ")"));
  }
  if (reply.problem.empty() && reply.status == 412) refuse_changed(address);
  if (const std::string region = reply.header("x-amz-bucket-region"); scheme == "s3" && !region.empty() && region != s3_region())
    user_error(address, ": the bucket is in another region (", what, "): set AWS_REGION=", region);
  if (code == "ExpiredToken" || code == "TokenRefreshRequired")
    user_error(address, ": the credentials have expired (", what, "): renew them and start again");
  if (reply.status == 401 || reply.status == 403) {
    const std::string denied = concat(address, ": access is denied (", what, "): ");
    if (is_bucket) user_error(denied, "check the credentials, and their rights in the bucket");
    throw MissingObject(denied + "the server wants credentials, or the address has expired");
  }
  user_error(address, ": ", what);
}

// Most faults pass at once. If shards are small, the samples that were fetched ahead last for only a few tenths of a second.
double pause_before(std::int64_t attempt, const HttpReply& reply) {
  thread_local std::minstd_rand random(std::random_device{}());
  const double usual = std::min(kLongestPause, kFirstPause * std::pow(2.5, static_cast<double>(attempt)));
  const double jittered = usual * std::uniform_real_distribution<double>(0.5, 1)(random);
  return std::max(jittered, std::min(kLongestRetryAfter, static_cast<double>(number(reply.header("retry-after")))));
}

}  // namespace

Listing parse_listing(const std::string& xml) {
  Listing out;
  if (xml.find("<ListBucketResult") == std::string::npos) user_error("expected a listing of a bucket, got ", printable(xml, 60));
  for (const std::string& block : elements(xml, "Contents"))
    out.objects.push_back({element(block, "Key"), {number(element(block, "Size")), without_quotes(element(block, "ETag"))}});
  if (element(xml, "IsTruncated") == "true") {
    out.next = element(xml, "NextContinuationToken");
    if (out.next.empty()) user_error("the listing names no next page: the store must have ListObjectsV2, version 2 of S3's listings");
  }
  return out;
}

Client::Client(const CacheSettings& settings) : settings_(settings), slots_(static_cast<std::ptrdiff_t>(settings.connections)) {}

Endpoint Client::endpoint(const std::string& scheme) const {
  const std::lock_guard lock(mutex_);
  auto [found, is_new] = endpoints_.try_emplace(scheme);
  if (is_new) found->second = endpoint_of(scheme);
  return found->second;
}

HttpRequest Client::usual_request(const std::string& method) const {
  HttpRequest request{.method = method};
  request.timeout = settings_.timeout;
  request.stop = &stopped_;
  return request;
}

HttpRequest Client::make_request(const std::string& address, const std::string& method, const std::string& query) {
  const Address parts = parse_address(address);
  HttpRequest request = usual_request(method);
  if (!parts.is_bucket()) {
    request.url = parts.is_hub() ? hub::file_url(parts, commit_of(address)) : url_of(address);
    return request;
  }
  // A bucket with dots cannot be part of the host's name, because the server's certificate does not fit.
  const Endpoint endpoint = this->endpoint(parts.scheme);
  const bool in_path = endpoint.in_path || parts.host.find('.') != std::string::npos;
  const std::size_t host = endpoint.url.find("://") + 3;
  request.url = in_path ? concat(endpoint.url, "/", percent_encoded(parts.host, true), "/")
                        : concat(endpoint.url.substr(0, host), parts.host, ".", endpoint.url.substr(host), "/");
  request.url += percent_encoded(parts.key, false) + (query.empty() ? "" : "?" + query);
  return request;
}

HttpReply Client::exchange(const std::string& address, HttpRequest request) {
  const std::string scheme = parse_address(address).scheme;
  if (scheme == "hf" && hub::is_offline())
    user_error(address, ": is not in the cache (", cache_folder(settings_).string(),
               "), and HF_HUB_OFFLINE forbids requests: unset it, or copy the cache from a machine that has read the files");
  Access access = credentials_.access(scheme);
  bool renewed = false;
  for (std::int64_t attempt = 0;; ++attempt) {
    HttpRequest sent = request;
    sent.signing = access.signing;
    if (!access.authorization.empty()) sent.headers.push_back("Authorization: " + access.authorization);
    slots_.acquire();
    struct Release {
      std::counting_semaphore<256>& slots;
      ~Release() { slots.release(); }
    };
    std::optional<Release> release(std::in_place, slots_);
    ++counts_.requests;
    HttpReply reply = send(sent);
    release.reset();
    if (stopped_) user_error(address, ": the transfer was stopped");
    if (reply.ok()) return reply;
    const bool denied = reply.problem.empty() && (reply.status == 400 || reply.status == 401 || reply.status == 403);
    if (denied && !std::exchange(renewed, true) && (access.signing || !access.authorization.empty())) {
      const Access fresh = credentials_.access(scheme, true);
      const auto token = [](const Access& of) { return of.signing ? of.signing->id + of.signing->token : of.authorization; };
      if (token(fresh) != token(access)) {
        access = fresh;
        continue;
      }
    }
    if (!may_pass(reply)) return reply;
    const std::string what = concat(address, ": ", describe(reply), " from ", host_of(request));
    if (attempt >= settings_.retries)
      user_error(what, ", ", attempt + 1, attempt == 0 ? " time" : " times",
                 ": check the network and the server, or set data.cache.retries or data.cache.timeout to more");
    const double seconds = pause_before(attempt, reply);
    if (const std::int64_t count = ++counts_.retries; count <= kRetriesTold)
      log::warning(what, "; trying again in ", fixed(seconds, 2), " s", count == kRetriesTold ? "; further failures are only counted" : "");
    pause(seconds);
  }
}

void Client::pause(double seconds) {
  std::unique_lock lock(mutex_);
  stopping_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stopped_.load(); });
}

void Client::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_all();
}

// Returns the commit at which this process reads the repository.
std::string Client::commit_of(const std::string& address) {
  const Address parts = parse_address(address);
  if (hub::is_commit(parts.revision)) return parts.revision;
  const std::lock_guard lock(hub_mutex_);
  std::string& commit = commits_[parts.host + "@" + parts.revision];
  if (!commit.empty()) return commit;
  const hub::Descriptions kept((cache_folder(settings_) / "hub").string());
  if (hub::is_offline() && !(commit = kept.commit(parts)).empty()) return commit;
  HttpRequest request = usual_request("GET");
  request.url = hub::revision_url(parts);
  const HttpReply reply = exchange(address, request);
  if (!reply.ok()) hub::fail(address, reply);
  const std::string found = hub::parse_commit(reply.body);
  if (found.empty())
    user_error(address, ": ", request.url, " names no commit: HF_ENDPOINT must be the address of a server like huggingface.co");
  commit = found;
  kept.keep_commit(parts, commit);
  log::info("hf://", parts.host, ": reading ", parts.revision, " at commit ", commit);
  return commit;
}

// Returns the files beside an address, which is a file or ends in /. The map is neither changed nor destroyed before this object.
const Client::HubFolder& Client::hub_folder(const std::string& address) {
  Address parts = parse_address(address);
  parts.key = parts.key.substr(0, parts.key.rfind('/') + 1);
  const std::lock_guard lock(hub_mutex_);
  const std::string commit = commit_of(address), name = concat(parts.host, "@", commit, "/", parts.key);
  if (const auto found = hub_folders_.find(name); found != hub_folders_.end()) return found->second;
  const hub::Descriptions kept((cache_folder(settings_) / "hub").string());
  auto files = kept.files(parts, commit);
  if (!files) {
    files.emplace();
    for (std::string url = hub::tree_url(parts, commit); !url.empty();) {
      HttpRequest request = usual_request("GET");
      request.url = url;
      const HttpReply reply = exchange(address, request);
      if (hub::says_no_folder(reply)) break;  // a commit never changes, so this is kept as an empty list
      if (!reply.ok()) hub::fail(address, reply);
      std::ranges::move(hub::parse_tree(reply.body, url), std::back_inserter(*files));
      const std::string next = hub::next_page(reply, url);
      if (next == url) user_error(address, ": the server repeats a page of its list of files");
      url = next;
    }
    kept.keep_files(parts, commit, *files);
  }
  return hub_folders_.emplace(name, HubFolder(files->begin(), files->end())).first->second;
}

ObjectState Client::look_up(const std::string& address) {
  if (const Address parts = parse_address(address); parts.is_hub()) {
    const HubFolder& files = hub_folder(address);
    if (const auto found = files.find(parts.key); found != files.end()) return found->second;
    throw MissingObject(concat(address, ": there is no such file (revision ", parts.revision, "); the name of a folder ends in /"));
  }
  HttpReply reply = exchange(address, make_request(address, "HEAD", ""));
  std::string size = reply.header("content-length");
  if (!reply.ok() && reply.status != 404) {
    // A reply to HEAD has no text that says why it failed, and an address that is signed for GET accepts no HEAD.
    HttpRequest request = make_request(address, "GET", "");
    request.headers.push_back("Range: bytes=0-0");
    request.sink = [](std::uint64_t offset, const char*, std::size_t count) { return offset + count <= 1; };
    reply = exchange(address, request);
    const std::string range = reply.header("content-range");
    size = range.substr(std::min(range.find('/') + 1, range.size()));
  }
  if (!reply.ok()) fail(address, reply);
  if (size.empty()) user_error(address, ": the server does not say how many bytes it has: copy the file, or read it with pipe:curl");
  return {number(size), version_of(reply)};
}

Client::Got Client::get(const std::string& address, const ObjectState& expected, std::uint64_t first, std::uint64_t size,
                        const Sink& sink) {
  const Address parts = parse_address(address);
  const std::uint64_t wanted = size == 0 ? expected.size : size;
  HttpRequest request = make_request(address, "GET", "");
  if (size > 0) request.headers.push_back(concat("Range: bytes=", first, "-", first + size - 1));
  // The Hub leads to other servers, whose ETags are others. A file of a commit cannot change.
  if (const std::string& version = expected.version;
      !parts.is_hub() && !version.empty() && !version.starts_with("W/") && version.find(' ') == std::string::npos)
    request.headers.push_back("If-Match: \"" + version + "\"");
  std::uint64_t got = 0;  // by the last attempt
  std::exception_ptr failure;
  request.sink = [&](std::uint64_t offset, const char* bytes, std::size_t count) {
    got = offset + count;
    if (got > wanted) return false;  // the server ignores the range, or the object has grown
    try {
      sink(first + offset, bytes, count);
    } catch (...) {
      failure = std::current_exception();  // no exception may pass through libcurl
      return false;
    }
    counts_.bytes += static_cast<std::int64_t>(count);
    return true;
  };
  const HttpReply reply = exchange(address, request);
  if (failure) std::rethrow_exception(failure);
  const bool replied = reply.status >= 200 && reply.status < 300;
  const std::string linked = without_quotes(reply.header("x-linked-etag"));
  const bool differs = parts.is_hub() ? !linked.empty() && linked != expected.version : version_of(reply) != expected.version;
  if ((replied && differs) || reply.status == 416) refuse_changed(address);
  if (replied && size > 0 && reply.status == 200 && wanted < expected.size) return {"", true};
  if (!reply.ok()) fail(address, reply);
  if (got != wanted) user_error(address, ": the server sent ", got, " of ", wanted, " bytes");
  return {parts.is_hub() && is_sha256(expected.version) ? expected.version : md5_of(parts, reply), false};
}

std::string Client::get_small(const std::string& address) {
  HttpRequest request = make_request(address, "GET", "");
  std::string out;
  bool too_large = false;
  request.sink = [&](std::uint64_t offset, const char* bytes, std::size_t count) {
    too_large = offset + count > kLargestSmall;
    if (too_large) return false;
    out.resize(offset);  // a repeated request begins at the start
    out.append(bytes, count);
    counts_.bytes += static_cast<std::int64_t>(count);
    return true;
  };
  const HttpReply reply = exchange(address, request);
  if (too_large) user_error(address, ": has more than 1 GiB, too much for a file of one sample");
  if (!reply.ok()) fail(address, reply);
  return out;
}

bool Client::fetch(const Piece& piece, const ObjectState& state, const std::string& name, const Sink& write) {
  const std::string& address = piece.address;
  const std::uint64_t size = piece.is_whole() ? state.size : piece.size;
  const std::size_t ranges = static_cast<std::size_t>((size + kRange - 1) / kRange);
  for (int attempt = 1;; ++attempt) {
    Got got;
    if (ranges > 1) {
      std::vector<Got> all(ranges);
      for_each_in_threads(ranges, static_cast<std::size_t>(settings_.connections), [&](std::size_t i) {
        const std::uint64_t first = i * kRange;
        all[i] = get(address, state, piece.first + first, std::min(kRange, size - first), write);
      });
      got = all[0];
      got.whole = std::ranges::any_of(all, &Got::whole);
    }
    if (!piece.is_whole()) {
      if (ranges == 1) got = get(address, state, piece.first, piece.size, write);
      return !got.whole;
    }
    if (ranges == 1 || got.whole) got = get(address, state, 0, 0, write);
    const bool sha = is_sha256(got.digest);
    if (got.digest.empty()) return true;
    if (const io::MappedFile file(name); (sha ? sha256(file.bytes()) : md5(file.bytes())) == got.digest) return true;
    const std::string what =
        concat(address, ": the bytes that arrive are not those of the object: their ", sha ? "SHA-256" : "MD5", " is not ", got.digest);
    if (attempt == kAttempts) user_error(what, ", ", kAttempts, " times: look for a proxy or a disk that damages data");
    log::warning(what, "; trying again");
  }
}

HttpReply Client::send_body(const std::string& address, const std::string& method, const std::string& query, std::string_view body) {
  HttpRequest request = make_request(address, method, query);
  request.body = body;
  const std::string digest = md5(body);
  if (!body.empty()) request.headers.push_back("Content-MD5: " + base64_encode(bytes_of(digest)));
  HttpReply reply = exchange(address, request);
  // A store may notice only after the head of its reply that a multipart upload has failed.
  if (reply.ok() && reply.body.find("<Error>") != std::string::npos) reply.status = 500;
  if (!reply.ok()) fail(address, reply);
  if (const std::string stored = md5_of(parse_address(address), reply); method == "PUT" && !stored.empty() && stored != digest)
    user_error(address, ": the store has received other bytes than were sent: check the network, and write it again");
  return reply;
}

void Client::put_parts(const std::string& address, std::string_view bytes) {
  const std::string id = element(send_body(address, "POST", "uploads=", "").body, "UploadId");
  if (id.empty()) user_error(address, ": the store does not begin an upload in parts");
  const std::string query = "uploadId=" + percent_encoded(id, true);
  try {
    const std::uint64_t size = std::max(kUploadPart, bytes.size() / kMostParts + 1);
    std::vector<std::string> tags((bytes.size() + size - 1) / size);
    for_each_in_threads(tags.size(), static_cast<std::size_t>(settings_.connections), [&](std::size_t i) {
      const HttpReply reply = send_body(address, "PUT", concat("partNumber=", i + 1, "&", query), bytes.substr(i * size, size));
      tags[i] = without_quotes(reply.header("etag"));
    });
    std::string list = "<CompleteMultipartUpload>";
    for (std::size_t i = 0; i < tags.size(); ++i)
      list += concat("<Part><PartNumber>", i + 1, "</PartNumber><ETag>\"", tags[i], "\"</ETag></Part>");
    try {
      send_body(address, "POST", query, list + "</CompleteMultipartUpload>");
    } catch (const MissingObject&) {
      // The store has ended the upload if only its reply to an earlier attempt was lost.
      if (look_up(address) != ObjectState{bytes.size(), tag_of_parts(tags)}) throw;
    }
  } catch (const UserError&) {
    try {
      exchange(address, make_request(address, "DELETE", query));  // otherwise the store keeps the parts
    } catch (const UserError&) {
      // abort_uploads() removes them later.
    }
    throw;
  }
}

void Client::put(const std::string& address, const std::string& file) {
  const std::string scheme = parse_address(address).scheme;
  if (!parse_address(address).is_bucket()) user_error(address, ": files can be written to s3:// and gs:// only");
  std::error_code missing;
  // A file that other threads may replace is read once.
  if (std::filesystem::file_size(file, missing) <= kUploadPart) return put_text(address, io::read_file(file));
  const io::MappedFile mapped(file);
  if (scheme == "s3" || credentials_.access(scheme).signing) return put_parts(address, mapped.bytes());
  if (mapped.bytes().size() > kLargestPut)
    user_error(file, ": has more than 5 GiB, which are sent in parts: set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY to HMAC keys");
  put_text(address, mapped.bytes());
}

void Client::put_text(const std::string& address, std::string_view text) {
  send_body(address, "PUT", "", text);
}

void Client::remove(const std::string& address) {
  if (!parse_address(address).is_bucket()) user_error(address, ": objects can be removed from s3:// and gs:// only");
  const HttpReply reply = exchange(address, make_request(address, "DELETE", ""));
  if (!reply.ok() && reply.status != 404) fail(address, reply);
}

std::vector<ListedObject> Client::list(const std::string& prefix, bool with_subfolders) {
  const Address parts = parse_address(prefix);
  if (parts.is_hub()) {
    const bool slash = parts.key.empty() && !prefix.ends_with('/');
    const std::string base = prefix.substr(0, prefix.size() - parts.key.size()) + (slash ? "/" : "");
    std::vector<ListedObject> files;
    for (const auto& [path, state] : hub_folder(prefix))
      if (path.starts_with(parts.key)) files.push_back({base + path, state});
    return files;
  }
  const std::string bucket = concat(parts.scheme, "://", parts.host, "/");
  std::vector<ListedObject> out;
  std::string next;
  do {
    // The parameters are in the order that signatures need.
    const std::string query = concat(next.empty() ? "" : concat("continuation-token=", percent_encoded(next, true), "&"),
                                     with_subfolders ? "" : "delimiter=%2F&", "list-type=2&prefix=", percent_encoded(parts.key, true));
    const HttpReply reply = exchange(prefix, make_request(bucket, "GET", query));
    if (!reply.ok()) fail(prefix, reply);
    Listing page;
    try {
      page = parse_listing(reply.body);
    } catch (const UserError& error) {
      user_error(prefix, ": ", error.what());
    }
    for (auto& [key, state] : page.objects) out.push_back({bucket + key, std::move(state)});
    if (!page.next.empty() && page.next == next) user_error(prefix, ": the store repeats a page of its listing");
    next = std::move(page.next);
  } while (!next.empty());
  return out;
}

void Client::abort_uploads(const std::string& prefix) {
  const Address parts = parse_address(prefix);
  const std::string bucket = concat(parts.scheme, "://", parts.host, "/");
  const HttpReply reply = exchange(prefix, make_request(bucket, "GET", concat("prefix=", percent_encoded(parts.key, true), "&uploads=")));
  if (!reply.ok()) fail(prefix, reply);
  for (const std::string& upload : elements(reply.body, "Upload")) {
    const std::string address = bucket + element(upload, "Key");
    if (!address.starts_with(prefix)) continue;
    exchange(address, make_request(address, "DELETE", "uploadId=" + percent_encoded(element(upload, "UploadId"), true)));
  }
}

}  // namespace tessera::remote
