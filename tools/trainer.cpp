#include <tessera/training/trainer_main.h>

int main(int argc, char** argv) {
  return tessera::trainer_main(argc, argv);
}
