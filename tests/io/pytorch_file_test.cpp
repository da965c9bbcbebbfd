#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/io/pytorch_file.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"
#include <tessera/base/log.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera::io {
namespace {

std::string file_named(const std::string& name) {
  return test_data("pytorch/" + name);
}

std::string error_in(const std::string& path) {
  const std::string error = error_of([&] { load_pytorch_file(path); });
  EXPECT_EQ(error.find('\n'), std::string::npos);
  return error;
}

// Expects the tensors that tests/data/pytorch/make_files.py wrote.
void expect_tensors(const std::map<std::string, at::Tensor>& tensors) {
  const at::Tensor counted = at::arange(12, at::kFloat);
  const std::map<std::string, at::Tensor> expected = {{"plain", counted.reshape({3, 4})},
                                                      {"turned", counted.reshape({3, 4}).t()},
                                                      {"every_other", counted.slice(0, 1, 12, 2)},
                                                      {"brain", at::tensor({1.0, -2.5}).to(at::kBFloat16)},
                                                      {"half", at::tensor({0.5}).to(at::kHalf)},
                                                      {"long", at::tensor({std::int64_t{1} << 40}, at::kLong)},
                                                      {"flags", at::tensor({1, 0}).to(at::kBool)},
                                                      {"scalar", at::scalar_tensor(2.5)},
                                                      {"empty", at::empty({0, 3})},
                                                      {"parameter", at::tensor({7.0F})}};
  ASSERT_EQ(tensors.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    EXPECT_EQ(tensors.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(tensors.at(name), tensor)) << name;
  }
  EXPECT_EQ(tensors.at("turned").strides(), (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(tensors.at("turned").storage().data(), tensors.at("plain").storage().data());
}

TEST(PytorchFile, ReadsTheStateDictOfACheckpointWithoutWrappers) {
  EXPECT_TRUE(is_pytorch_file(file_named("checkpoint.pt")));
  expect_tensors(load_pytorch_file(file_named("checkpoint.pt")));
}

TEST(PytorchFile, ReadsAStateDictOfProtocol4) {
  expect_tensors(load_pytorch_file(file_named("protocol_4.pt")));
}

TEST(PytorchFile, ReadsParametersAndBuffersOfAWholeModule) {
  const auto tensors = load_pytorch_file(file_named("module.pt"));
  for (const char* name : {"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"})
    EXPECT_TRUE(tensors.contains(name)) << name;
  EXPECT_EQ(tensors.at("0.weight").sizes(), (std::vector<std::int64_t>{2, 2}));
}

TEST(PytorchFile, AFileFromBeforePytorch1_6IsRefusedWithAWayToConvertIt) {
  const std::string path = file_named("before_1_6.pt");
  EXPECT_TRUE(is_pytorch_file(path));
  EXPECT_EQ(error_in(path),
            path +
                ": a pickle without an archive around it, as PyTorch wrote before 1.6, is not supported; three lines "
                "of Python convert it: import torch; state = torch.load('" +
                path + "', map_location='cpu', weights_only=True); torch.save(state.get('state_dict', state), '" +
                path + ".new.pt')");
}

TEST(PytorchFile, TheErrorForAFileWithoutAModelListsItsKeys) {
  EXPECT_EQ(error_in(file_named("no_model.pt")),
            file_named("no_model.pt") +
                ": no model in it: expected tensors, or a dict `state_dict`, `model_state_dict` or `model`; its keys: "
                "epoch and best");
}

TEST(PytorchFile, OfSeveralStateDictsOneIsReadAndNamedAndAnotherCanBeChosen) {
  const std::string path = file_named("states.pt");
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_pytorch_file(path).at("a").item<double>(), 1);
  load_pytorch_file(path);
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string line = path + ": has the state dicts model_ema, state_dict and swa, of which state_dict is read; choose with "
                                  "--state NAME, start.state, or state= in Python\n";
  EXPECT_NE(said.find(line), std::string::npos) << said;
  EXPECT_EQ(said.find(line), said.rfind(line)) << "said once";
  EXPECT_EQ(load_pytorch_file(path, "model_ema").at("a").item<double>(), 2);
  const auto averaged = load_pytorch_file(path, "swa");
  EXPECT_EQ(averaged.at("a").item<double>(), 3);
  EXPECT_EQ(averaged.size(), 1U) << "the count of AveragedModel is no weight";
  EXPECT_EQ(error_of([&] { load_pytorch_file(path, "ema"); }),
            path + ": has no state dict ema; it has model_ema, state_dict and swa");
}

TEST(PytorchFile, StateDictsWithoutAUsualNameMustBeChosen) {
  const std::string path = file_named("nested_states.pt");
  EXPECT_EQ(error_in(path), path + ": holds several state dicts, ema.student and ema.teacher: choose one with --state NAME, start.state, "
                                   "or state= in Python");
  EXPECT_EQ(load_pytorch_file(path, "ema.teacher").at("a").item<double>(), 2);
}

TEST(PytorchFile, StateDictsBelowOtherEntriesAreNamedAndCanBeChosen) {
  const std::string deeper = file_named("deeper_states.pt");
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_pytorch_file(deeper).at("a").item<double>(), 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("has the state dicts state_dict and ema.shadow, of which state_dict is read"), std::string::npos) << said;
  EXPECT_EQ(load_pytorch_file(deeper, "ema.shadow").at("a").item<double>(), 2);
  const std::string below = file_named("states_in_model.pt");
  EXPECT_EQ(error_in(below).find(below + ": holds several state dicts, model.state_dict and model.ema: choose one"), 0U) << error_in(below);
  EXPECT_EQ(load_pytorch_file(below, "model.ema").at("a").item<double>(), 2);
}

TEST(PytorchFile, ANumberBesideAStateDictIsNoModel) {
  EXPECT_EQ(load_pytorch_file(file_named("state_and_number.pt")).size(), 2U);
}

using WrappedTensors = FolderTest;

TEST_F(WrappedTensors, AreReadWithoutTheWrappersPrefixesFromSafetensorsToo) {
  const at::Tensor one = at::ones({1});
  for (const char* wrapper :
       {"module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod.", "module.module.", "_fsdp_wrapped_module."}) {
    save_safetensors(path("w.safetensors"), {{std::string(wrapper) + "visual.proj", one}, {std::string(wrapper) + "logit_scale", one}});
    const auto tensors = load_tensors(path("w.safetensors"));
    EXPECT_TRUE(tensors.contains("visual.proj") && tensors.contains("logit_scale") && tensors.size() == 2) << wrapper;
  }
  save_safetensors(path("w.safetensors"), {{"visual._checkpoint_wrapped_module.proj", one}, {"module.scale", one}});
  const auto tensors = load_tensors(path("w.safetensors"));
  EXPECT_TRUE(tensors.contains("visual.proj") && tensors.contains("module.scale")) << "a module of this name is part of the model";
  EXPECT_EQ(error_of([&] { load_tensors(path("w.safetensors"), "ema"); }),
            path("w.safetensors") + ": has no state dict ema: only PyTorch files have several: leave the choice out");
}

TEST(PytorchFile, APickleThatRunsCodeIsRefused) {
  const std::string path = file_named("runs_code.pt");
  EXPECT_EQ(error_in(path), path + ": its pickle calls posix.system, which no model needs: the file is refused, nothing was run");
}

using DamagedPytorchFile = FolderTest;

TEST_F(DamagedPytorchFile, IsRefusedInOneLine) {
  const std::string whole = read_file(file_named("checkpoint.pt"));
  const std::string path = write("a.pt", whole.substr(0, whole.size() / 2));
  EXPECT_EQ(error_in(path), path + ": cut off, or not a PyTorch file: it begins like a zip archive, but the list of "
                                   "contents at the end is missing");

  // Change the sizes of `plain` in the pickle from (3, 4) to (127, 4), which is more than its storage holds.
  std::string changed = whole;
  const std::string sizes = "K\x03K\x04\x86";
  const std::size_t place = changed.find(sizes);
  ASSERT_NE(place, std::string::npos);
  changed[place + 1] = 127;
  write_file(path, changed);
  EXPECT_NE(error_in(path).find("reaches outside its storage of 12 numbers"), std::string::npos) << error_in(path);
  // With the strides (0, 1) instead of (4, 1), the tensor is valid: it is a row that expand() repeats.
  ASSERT_EQ(changed.substr(place + 7, 5), "K\x04K\x01\x86");
  changed[place + 8] = 0;
  write_file(path, changed);
  EXPECT_TRUE(at::equal(load_pytorch_file(path).at("plain"), at::arange(4, at::kFloat).expand({127, 4})));

  // Flip one bit of the data of the tensor `plain`, which holds the float32 numbers 0 to 11.
  changed = whole;
  const std::size_t data = changed.find(std::string("\x00\x00\x80\x3f\x00\x00\x00\x40", 8));
  ASSERT_NE(data, std::string::npos);
  changed[data + 2] ^= 1;
  write_file(path, changed);
  const std::string damaged = error_in(path);
  EXPECT_TRUE(damaged.starts_with(path + ": tensor ")) << damaged;
  EXPECT_NE(damaged.find(" is damaged: the checksum of its data (CRC-32) differs from the file's"), std::string::npos)
      << damaged;
}

}  // namespace
}  // namespace tessera::io
