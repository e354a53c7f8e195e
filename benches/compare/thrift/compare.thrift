// The service of the systems that speak Thrift.
namespace rs compare

exception NotFound {
  1: required string message;
}

service Echo {
  // Echoes.
  binary Unary(1: required binary body);
  // Fails.
  binary Refused(1: required binary body) throws (1: NotFound not_found);
}
