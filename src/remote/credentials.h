#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "src/remote/http.h"

namespace tessera::remote {

/// Who a request to a store comes from: keys to sign it with, or the value of its header Authorization; neither for public objects.
struct Access {
  std::optional<Signing> signing;
  std::string authorization;
};

/// Where to find the buckets of a scheme.
struct Endpoint {
  std::string url;       // "https://host:port", without a slash at the end
  bool in_path = false;  // whether a bucket's name is the first folder of the path, not the first part of the host's name
};

/// Finds credentials as the command-line tools of the stores do. Keys that expire are renewed five minutes before. Thread-safe.
///
/// s3://  the first of: AWS_NO_SIGN_REQUEST=true (public buckets); AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; the profile
///        AWS_PROFILE (default) of ~/.aws/credentials and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE); the container's
///        endpoint (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI, AWS_CONTAINER_AUTHORIZATION_TOKEN or _TOKEN_FILE); the instance's
///        endpoint (IMDSv2) unless AWS_EC2_METADATA_DISABLED=true. Region: AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1.
///        Endpoint: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url, Amazon's.
/// gs://  the first of: GS_NO_SIGN_REQUEST=true; the HMAC keys GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY; GOOGLE_OAUTH_ACCESS_TOKEN; the
///        machine's metadata server (GCE_METADATA_HOST). Endpoint: STORAGE_EMULATOR_HOST, Google's.
/// hf://  the token of hub::token(), if there is one.
class Credentials {
 public:
  /// Returns the access for requests of a scheme; none for http and https. Throws UserError that says which ways there are if there are no
  /// credentials, or if they are of a kind that is not supported. If `renew` is true, asks the source of the credentials again.
  Access access(const std::string& scheme, bool renew = false);

 private:
  /// Credentials from an endpoint.
  struct Kept {
    Access access;
    double expires = 0;  // seconds since 1970; 0: never
  };
  std::mutex mutex_;
  std::optional<Kept> s3_, gs_;

  Kept find_s3() const;
  Kept find_gs() const;
};

Endpoint endpoint_of(const std::string& scheme);
std::string s3_region();

}  // namespace tessera::remote
