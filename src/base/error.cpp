#include <tessera/base/error.h>
#include <tessera/base/job_error.h>

#include <exception>
#include <iostream>

namespace tessera {
namespace {

// c10::Error appends a C++ backtrace to what(), which users should not see. It is cut from the text, because this library must not
// depend on LibTorch.
std::string without_backtrace(const std::string& text) { return text.substr(0, text.find("\nException raised from")); }

}  // namespace

int run_program(const std::string& name, const std::function<int()>& body) {
  try {
    return body();
  } catch (const UserError& error) {
    std::cerr << name << ": " << error.what() << std::endl;
    return 2;
  } catch (const JobError& error) {
    std::cerr << name << ": " << error.what() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << name << ": internal error: " << without_backtrace(error.what()) << std::endl;
  }
  return 1;
}

}  // namespace tessera
