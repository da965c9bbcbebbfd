#include <cerrno>
#include <cstring>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/training/checkpoint/checkpoint_writer.h>

namespace tessera {
namespace {

void copy_tensors(std::map<std::string, at::Tensor>& tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

void run_command(const std::string& command, const std::string& checkpoint) {
  const char* const words[] = {"sh", "-c", command.c_str(), "sh", checkpoint.c_str(), nullptr};
  pid_t child = 0;
  const int failure = ::posix_spawn(&child, "/bin/sh", nullptr, nullptr, const_cast<char* const*>(words), environ);
  if (failure != 0) user_error("checkpoint.command: cannot start /bin/sh: ", std::strerror(failure));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0)
    user_error("checkpoint.command: ", command, ": failed ",
               WIFEXITED(status) ? concat("with exit code ", WEXITSTATUS(status)) : "by a signal", " for ", checkpoint);
}

// What comes after a checkpoint must not take the checkpoint back.
void attempt(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    log::warning(error.what(), "; the checkpoint itself is written, training goes on");
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointFolder folder, CheckpointSettings settings)
    : folder_(std::move(folder)), settings_(std::move(settings)) {}

void CheckpointWriter::begin(Checkpoint checkpoint, bool stands_still) {
  const bool background = settings_.background && !stands_still;
  if (background)
    for (auto* tensors : {&checkpoint.model.weights, &checkpoint.optimizer, &checkpoint.ema, &checkpoint.teacher})
      copy_tensors(*tensors);
  written_ = std::async(background ? std::launch::async : std::launch::deferred,
                        [this, whole = std::move(checkpoint)] { return write(whole); });
}

std::string CheckpointWriter::collect() {
  return written_.get();
}

std::string CheckpointWriter::write(const Checkpoint& checkpoint) {
  std::string target = folder_.save(checkpoint);
  if (settings_.copy_to) attempt([&] { copy_checkpoint(target, *settings_.copy_to); });
  if (settings_.command) attempt([&] { run_command(*settings_.command, target); });
  return target;
}

}  // namespace tessera
