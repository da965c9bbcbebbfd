#include "src/remote/credentials.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/remote/hub.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::remote {
namespace {

constexpr double kRenewBefore = 300;     // seconds
constexpr double kEndpointPatience = 2;  // seconds in which the endpoint of an instance or a container must answer

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::string value = environment(name); !value.empty()) return value;
  return {};
}

bool is_on(const char* name) {
  const std::string value = environment(name);
  return value == "1" || value == "true" || value == "TRUE" || value == "True" || value == "YES" || value == "yes";
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string profile_name() {
  const std::string name = first_set({"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  return name.empty() ? "default" : name;
}

// Adds the settings of a section of an INI file that are not in `out` yet. A missing file has no settings.
void add_section(const std::string& path, const std::string& section, std::map<std::string, std::string>& out) {
  std::error_code ignored;
  if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) return;
  bool inside = false;
  for (const std::string& written : split_lines(io::read_file(path))) {
    const std::string line(strip(written));
    if (line.starts_with('['))
      inside = strip(std::string_view(line).substr(1, line.find(']') - 1)) == section;
    else if (const std::size_t equals = line.find('='); inside && equals != std::string::npos && !line.starts_with('#'))
      out.try_emplace(std::string(strip(line.substr(0, equals))), strip(line.substr(equals + 1)));
  }
}

// Returns the settings of the profile that the environment names. Its keys are empty if there is no such profile.
std::map<std::string, std::string> profile() {
  const std::string name = profile_name(), home = environment("HOME");
  const auto file = [&](const char* variable, const char* usual) {
    const std::string named = environment(variable);
    return !named.empty() ? named : home.empty() ? "" : home + usual;
  };
  std::map<std::string, std::string> out;
  add_section(file("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"), name, out);
  add_section(file("AWS_CONFIG_FILE", "/.aws/config"), name == "default" ? name : "profile " + name, out);
  return out;
}

std::string value_of(const std::map<std::string, std::string>& settings, const char* name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "" : found->second;
}

// Seconds since 1970 for a time such as 2026-01-31T12:00:00Z; 0 if it is none.
double parse_time(const std::string& text) {
  std::tm time{};
  return ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time) == nullptr ? 0 : static_cast<double>(::timegm(&time));
}

std::string ask(const std::string& method, const std::string& url, std::vector<std::string> headers, const char* what) {
  HttpRequest request{.method = method, .url = url, .headers = std::move(headers)};
  request.connect_timeout = request.timeout = kEndpointPatience;
  const HttpReply reply = send(request);
  if (!reply.ok())
    user_error(what, " (", url, ") gives no credentials: ", reply.problem.empty() ? concat("HTTP ", reply.status) : reply.problem);
  return std::string(strip(reply.body));
}

// Reads the keys that the endpoints of containers and instances return.
std::pair<Signing, double> parse_keys(const std::string& text, const char* what) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto member = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_string() ? json[name].get<std::string>() : "";
  };
  Signing out{member("AccessKeyId"), member("SecretAccessKey"), member("Token"), s3_region()};
  if (out.id.empty() || out.secret.empty()) user_error(what, ": expected a JSON object with AccessKeyId, got ", printable(text, 60));
  return {out, parse_time(member("Expiration"))};
}

std::pair<Signing, double> keys_of_container(const std::string& url) {
  std::string token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const std::string file = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); !file.empty()) token = strip(io::read_file(file));
  std::vector<std::string> headers;
  if (!token.empty()) headers.push_back("Authorization: " + token);
  constexpr const char* what = "the container's endpoint for credentials";
  return parse_keys(ask("GET", url, headers, what), what);
}

std::pair<Signing, double> keys_of_instance() {
  constexpr const char* what = "the instance's endpoint for credentials";
  const std::string named = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  std::string url = (named.empty() ? "http://169.254.169.254" : named) + "/latest/";
  const std::string token = ask("PUT", url + "api/token", {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}, what);
  const std::vector<std::string> headers = {"X-aws-ec2-metadata-token: " + token};
  url += "meta-data/iam/security-credentials/";
  return parse_keys(ask("GET", url + split_lines(ask("GET", url, headers, what)).at(0), headers, what), what);
}

[[noreturn]] void refuse_s3(const std::string& why) {
  user_error("s3: there are no credentials (", why,
             "): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile with keys, or "
             "AWS_NO_SIGN_REQUEST=true for a public bucket");
}

}  // namespace

std::string s3_region() {
  std::string out = first_set({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (out.empty()) out = value_of(profile(), "region");
  return out.empty() ? "us-east-1" : out;
}

Endpoint endpoint_of(const std::string& scheme) {
  Endpoint out;
  if (scheme == "s3") {
    out.url = first_set({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
    if (out.url.empty()) out.url = value_of(profile(), "endpoint_url");
  } else {
    out.url = environment("STORAGE_EMULATOR_HOST");
    if (out.url.empty()) out.url = "https://storage.googleapis.com";
  }
  out.in_path = !out.url.empty();
  if (out.url.empty()) out.url = concat("https://s3.", s3_region(), ".amazonaws.com");
  if (out.url.find("://") == std::string::npos) out.url = "http://" + out.url;
  while (out.url.ends_with('/')) out.url.pop_back();
  return out;
}

Access Credentials::access(const std::string& scheme, bool renew) {
  if (const std::string token = scheme == "hf" ? hub::token() : ""; !token.empty()) return {std::nullopt, "Bearer " + token};
  if (scheme != "s3" && scheme != "gs") return {};
  const std::lock_guard lock(mutex_);
  std::optional<Kept>& kept = scheme == "s3" ? s3_ : gs_;
  if (renew || !kept || (kept->expires > 0 && kept->expires - kRenewBefore < now())) {
    try {
      kept = scheme == "s3" ? find_s3() : find_gs();
    } catch (const UserError&) {
      if (renew || !kept || kept->expires < now()) throw;  // the old keys are good for some minutes more
    }
  }
  return kept->access;
}

Credentials::Kept Credentials::find_s3() const {
  if (is_on("AWS_NO_SIGN_REQUEST")) return {};
  Signing keys{environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"), environment("AWS_SESSION_TOKEN"), s3_region()};
  if (!keys.id.empty() && !keys.secret.empty()) return {{keys, ""}};
  const auto settings = profile();
  if (const std::string id = value_of(settings, "aws_access_key_id"); !id.empty())
    return {{Signing{id, value_of(settings, "aws_secret_access_key"), value_of(settings, "aws_session_token"), s3_region()}, ""}};
  for (const char* kind : {"credential_process", "sso_session", "sso_start_url", "role_arn"})
    if (settings.contains(kind))
      user_error("s3: the profile ", profile_name(), " uses ", kind,
                 ", which Tessera cannot read: run eval \"$(aws configure export-credentials "
                 "--format env)\" first");
  if (settings.empty() && profile_name() != "default") refuse_s3(concat("the profile ", profile_name(), " does not exist"));
  std::string container = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (const std::string path = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); !path.empty())
    container = "http://169.254.170.2" + path;
  if (container.empty() && is_on("AWS_EC2_METADATA_DISABLED")) refuse_s3("neither in the environment nor in ~/.aws");
  try {
    const auto [found, expires] = container.empty() ? keys_of_instance() : keys_of_container(container);
    return {{found, ""}, expires};
  } catch (const UserError& error) {
    refuse_s3(error.what());
  }
}

Credentials::Kept Credentials::find_gs() const {
  if (is_on("GS_NO_SIGN_REQUEST")) return {};
  if (const std::string id = environment("GS_ACCESS_KEY_ID"); !id.empty())
    return {{Signing{id, environment("GS_SECRET_ACCESS_KEY"), "", "auto"}, ""}};
  if (const std::string token = environment("GOOGLE_OAUTH_ACCESS_TOKEN"); !token.empty()) return {{std::nullopt, "Bearer " + token}};
  constexpr const char* ways =
      ": set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY to HMAC keys, or GOOGLE_OAUTH_ACCESS_TOKEN to the output of gcloud auth "
      "print-access-token, or GS_NO_SIGN_REQUEST=true for a public bucket";
  if (const std::string file = environment("GOOGLE_APPLICATION_CREDENTIALS"); !file.empty())
    user_error("gs: Tessera cannot use the key file ", file, " (GOOGLE_APPLICATION_CREDENTIALS)", ways);
  const std::string host = environment("GCE_METADATA_HOST");
  const std::string url =
      concat("http://", host.empty() ? "metadata.google.internal" : host, "/computeMetadata/v1/instance/service-accounts/default/token");
  try {
    const std::string text = ask("GET", url, {"Metadata-Flavor: Google"}, "the metadata server");
    const auto json = nlohmann::json::parse(text);
    return {{std::nullopt, "Bearer " + json.at("access_token").get<std::string>()}, now() + json.at("expires_in").get<double>()};
  } catch (const UserError& error) {
    user_error("gs: there are no credentials (", error.what(), ")", ways);
  } catch (const nlohmann::json::exception&) {
    user_error("gs: the metadata server (", url, ") returned no token", ways);
  }
}

}  // namespace tessera::remote
