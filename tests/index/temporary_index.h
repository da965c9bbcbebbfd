#pragma once

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include <tessera/base/error.h>

namespace tessera::index {

/// Creates a folder for each test and removes it afterwards.
class IndexTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_index_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

/// Returns the message of the UserError that a call throws, or what happened instead.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

}  // namespace tessera::index
