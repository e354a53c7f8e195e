// Command foreign calls the edge with the gRPC of Go: what it knows of the services it learns by reflection.
//
// Argument: the edge's address. It prints a line for each thing that works, and fails at the first that does not.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const patience = time.Minute

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address string) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	patient, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	file, err := reflected(patient, connection, "edge.test.Echo")
	if err != nil {
		return fmt.Errorf("reflection: %w", err)
	}
	fmt.Println("ok reflection")
	echo := &echo{connection: connection, file: file}
	for _, proof := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"unary", echo.unary},
		{"server streaming", echo.serverStreaming},
		{"client streaming", echo.clientStreaming},
		{"both directions", echo.bothDirections},
		{"metadata", echo.metadata},
		{"deadline exceeded", echo.deadline},
		{"status with details", echo.failure},
		{"cancellation", echo.cancellation},
		{"health", echo.health},
	} {
		if err := proof.run(patient); err != nil {
			return fmt.Errorf("%s: %w", proof.name, err)
		}
		fmt.Println("ok", proof.name)
	}
	return nil
}

// reflected asks the server for the file that describes a service.
func reflected(ctx context.Context, connection *grpc.ClientConn, service string) (protoreflect.FileDescriptor, error) {
	stream, err := reflection.NewServerReflectionClient(connection).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	question := &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}
	if err := stream.Send(&reflection.ServerReflectionRequest{MessageRequest: question}); err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	encoded := answer.GetFileDescriptorResponse().GetFileDescriptorProto()
	if len(encoded) == 0 {
		return nil, fmt.Errorf("no file: %v", answer)
	}
	described := &descriptorpb.FileDescriptorProto{}
	if err := proto.Unmarshal(encoded[0], described); err != nil {
		return nil, err
	}
	// Options that this program has no use for are in files of their own.
	described.Dependency, described.OptionDependency = nil, nil
	return protodesc.FileOptions{AllowUnresolvable: true}.New(described, nil)
}

// echo calls the service, with messages made from its file.
type echo struct {
	connection *grpc.ClientConn
	file       protoreflect.FileDescriptor
}

func (e *echo) message(name protoreflect.Name) *dynamicpb.Message {
	return dynamicpb.NewMessage(e.file.Messages().ByName(name))
}

func (e *echo) text(text string) *dynamicpb.Message {
	message := e.message("Text")
	message.Set(message.Descriptor().Fields().ByName("text"), protoreflect.ValueOfString(text))
	return message
}

func (e *echo) number(number uint32) *dynamicpb.Message {
	message := e.message("Number")
	message.Set(message.Descriptor().Fields().ByName("number"), protoreflect.ValueOfUint32(number))
	return message
}

func read(message *dynamicpb.Message) string {
	return message.Get(message.Descriptor().Fields().ByName("text")).String()
}

func path(method string) string { return "/edge.test.Echo/" + method }

func (e *echo) call(ctx context.Context, method string, request proto.Message, options ...grpc.CallOption) (string, error) {
	reply := e.message("Text")
	err := e.connection.Invoke(ctx, path(method), request, reply, options...)
	return read(reply), err
}

func (e *echo) stream(ctx context.Context, method string) (grpc.ClientStream, error) {
	found := e.file.Services().ByName("Echo").Methods().ByName(protoreflect.Name(method))
	description := &grpc.StreamDesc{ClientStreams: found.IsStreamingClient(), ServerStreams: found.IsStreamingServer()}
	return e.connection.NewStream(ctx, description, path(method))
}

func (e *echo) next(stream grpc.ClientStream) (string, error) {
	reply := e.message("Text")
	err := stream.RecvMsg(reply)
	return read(reply), err
}

func (e *echo) unary(ctx context.Context) error {
	return same("SALUT", nil)(e.call(ctx, "Say", e.text("salut")))
}

func (e *echo) serverStreaming(ctx context.Context) error {
	stream, err := e.stream(ctx, "Count")
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(e.number(300)), stream.CloseSend()); err != nil {
		return err
	}
	for count := 1; ; count++ {
		text, err := e.next(stream)
		if errors.Is(err, io.EOF) && count == 301 {
			return nil
		}
		if err := same(fmt.Sprint(count), nil)(text, err); err != nil {
			return err
		}
	}
}

func (e *echo) clientStreaming(ctx context.Context) error {
	stream, err := e.stream(ctx, "Gather")
	if err != nil {
		return err
	}
	var expected strings.Builder
	for count := range 1000 {
		word := fmt.Sprintf("%d ", count)
		expected.WriteString(word)
		if err := stream.SendMsg(e.text(word)); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return same(expected.String(), nil)(e.next(stream))
}

func (e *echo) bothDirections(ctx context.Context) error {
	stream, err := e.stream(ctx, "Talk")
	if err != nil {
		return err
	}
	for _, word := range []string{"one", "two", "three"} {
		if err := stream.SendMsg(e.text(word)); err != nil {
			return err
		}
		if err := same(strings.ToUpper(word), nil)(e.next(stream)); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return same("", io.EOF)(e.next(stream))
}

func (e *echo) metadata(ctx context.Context) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "tenant", "shop", "token-bin", "\x00\xff")
	seen, err := e.call(ctx, "Metadata", e.text(""))
	if err != nil {
		return err
	}
	for _, line := range []string{"tenant=shop\n", "token-bin=\\x00\\xff\n"} {
		if !strings.Contains(seen, line) {
			return fmt.Errorf("%q is not in %q", line, seen)
		}
	}
	return nil
}

// waits asks how many tasks of the server began to wait, how many of them ended, and how much time this call has.
func (e *echo) waits(ctx context.Context) (begun, ended int, left time.Duration, err error) {
	text, err := e.call(ctx, "Waits", e.text(""))
	if err != nil {
		return 0, 0, 0, err
	}
	var milliseconds int64
	_, err = fmt.Sscan(text, &begun, &ended, &milliseconds)
	return begun, ended, time.Duration(milliseconds) * time.Millisecond, err
}

// until asks for that again and again.
func (e *echo) until(ctx context.Context, holds func(begun, ended int) bool) error {
	for {
		begun, ended, _, err := e.waits(ctx)
		if err != nil {
			return fmt.Errorf("waiting for tasks to begin or end: %w", err)
		}
		if holds(begun, ended) {
			return nil
		}
	}
}

func (e *echo) deadline(ctx context.Context) error {
	// Without a deadline of the client's it would be 10 s.
	const short = 9 * time.Second
	brief, stop := context.WithTimeout(ctx, short)
	defer stop()
	if _, _, left, err := e.waits(brief); err != nil || left < time.Second || left > short {
		return fmt.Errorf("%v of %v are left (%v)", left, short, err)
	}
	// On a host with too much to do a call may be over before its task has begun.
	for _, timeout := range []time.Duration{200 * time.Millisecond, 2 * time.Second, 20 * time.Second} {
		hasty, stop := context.WithTimeout(ctx, timeout)
		err := coded(codes.DeadlineExceeded)(e.call(hasty, "Wait", e.text("")))
		stop()
		if err != nil {
			return err
		}
		begun, _, _, err := e.waits(ctx)
		if err != nil {
			return err
		}
		if begun > 0 {
			break
		}
	}
	return e.until(ctx, func(begun, ended int) bool { return begun == ended && begun > 0 })
}

func (e *echo) failure(ctx context.Context) error {
	trailers := metadata.MD{}
	// The details of the service are a status of this code, which this client takes whole. Those of another code
	// it refuses.
	_, err := e.call(ctx, "Fail", e.number(uint32(codes.NotFound)), grpc.Trailer(&trailers))
	if err := coded(codes.NotFound)("", err); err != nil {
		return err
	}
	if executed := trailers.Get("convoke-executed"); len(executed) != 1 || executed[0] != "yes" {
		return fmt.Errorf("trailers: %v", trailers)
	}
	return nil
}

func (e *echo) cancellation(ctx context.Context) error {
	before, _, _, err := e.waits(ctx)
	if err != nil {
		return err
	}
	// Its deadline is far: while this client is connected only the reset ends the task.
	cancelled, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	stream, err := e.stream(cancelled, "Wait")
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(e.text("")), stream.CloseSend()); err != nil {
		return err
	}
	if err := e.until(ctx, func(begun, _ int) bool { return begun > before }); err != nil {
		return err
	}
	cancel()
	if err := coded(codes.Canceled)(e.next(stream)); err != nil {
		return err
	}
	return e.until(ctx, func(begun, ended int) bool { return begun == ended })
}

func (e *echo) health(ctx context.Context) error {
	client := health.NewHealthClient(e.connection)
	for _, name := range []string{"", "edge.test.Echo"} {
		reply, err := client.Check(ctx, &health.HealthCheckRequest{Service: name})
		if err != nil || reply.Status != health.HealthCheckResponse_SERVING {
			return fmt.Errorf("%q: %v, %v", name, reply, err)
		}
	}
	_, err := client.Check(ctx, &health.HealthCheckRequest{Service: "nobody"})
	return coded(codes.NotFound)("", err)
}

// same checks a text and an error.
func same(expected string, expectedErr error) func(string, error) error {
	return func(text string, err error) error {
		if text != expected || !errors.Is(err, expectedErr) {
			return fmt.Errorf("%q (%v), not %q (%v)", text, err, expected, expectedErr)
		}
		return nil
	}
}

// coded checks that a call failed so.
func coded(expected codes.Code) func(string, error) error {
	return func(_ string, err error) error {
		if code := status.Code(err); code != expected {
			return fmt.Errorf("%v (%v), not %v", code, err, expected)
		}
		return nil
	}
}
