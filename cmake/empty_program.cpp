// Stands in for a program whose only use is its precompiled headers.
int main() {}
