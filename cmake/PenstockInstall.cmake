# Installs the libraries, headers and tools, and the package that find_package(penstock) reads.
