// Answers the bodies of tessera-serve's requests: JSON, base64, images and texts. The first byte chooses the path.
#include <cstdint>

#include <nlohmann/json.hpp>

#include "tests/fuzz/target.h"
#include "tests/serving/tiny_model.h"
#include <tessera/base/text.h>

namespace tessera::fuzz {

void fuzz_request(std::string_view input) {
  static const serving::Service service = [] {
    std::vector<std::unique_ptr<serving::ServedModel>> models;
    models.push_back(served_tiny_model());
    return serving::Service(std::move(models), {.inputs = 8, .text_bytes = 200, .pixels = 1 << 20});
  }();
  static const std::vector<std::string> paths = serving::Service::paths();
  if (input.empty()) return;
  try {
    const std::string answer = service.post(paths[static_cast<std::uint8_t>(input[0]) % paths.size()], input.substr(1));
    require(nlohmann::json::parse(answer, nullptr, false).is_object(), "request: the answer is not JSON");
  } catch (const serving::RequestError& error) {
    check_message(UserError(error.what()));
    require(error.status() >= 400 && error.status() < 500, "request: a mistake of the client has another status");
  } catch (const UserError& error) {
    check_message(error);
  }
}

}  // namespace tessera::fuzz
