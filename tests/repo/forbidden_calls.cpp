// Does everything that library code must not: archive_symbols_test.cpp has to catch each of these.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <unistd.h>

namespace penstock::repo_test {

void calls_exit() {
  std::exit(1);
}
void calls_quick_exit() {
  std::quick_exit(1);
}
void calls_posix_exit() {
  _exit(1);
}
void calls_c99_exit() {
  std::_Exit(1);
}
void calls_abort() {
  std::abort();
}
void calls_printf(int value) {
  std::printf("%d\n", value);
}
void calls_puts(const char* text) {
  std::puts(text);
}
void calls_putchar(int letter) {
  std::putchar(letter);
}
void writes_stdout(int value) {
  std::fprintf(stdout, "%d\n", value);
}
void writes_stderr(int value) {
  std::fprintf(stderr, "%d\n", value);
}
void writes_cout(int value) {
  std::cout << value;
}
void writes_cerr(int value) {
  std::cerr << value;
}
void writes_clog(int value) {
  std::clog << value;
}

}  // namespace penstock::repo_test
