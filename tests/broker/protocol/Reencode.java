// Reads messages with the classes of kafka-clients and writes them again.
// Input: one message a line, "<api key> <request|response> <version> <hex>" or "data <class> <version> <hex>";
// output: one line of hex, or the error.
// The line "errors" is answered with every error code: "<code> <name> <true if clients retry>,...".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class Reencode {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("errors")) {
                System.out.println(Arrays.stream(Errors.values())
                    .map(one -> one.code() + " " + one.name() + " " + (one.exception() instanceof RetriableException))
                    .collect(Collectors.joining(",")));
                continue;
            }
            String[] words = line.split(" ", 4);
            try {
                ApiMessage message = words[0].equals("data")
                    ? (ApiMessage) Class.forName(words[1]).getDeclaredConstructor().newInstance()
                    : create(ApiMessageType.fromApiKey(Short.parseShort(words[0])), words[1]);
                short version = Short.parseShort(words[2]);
                ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
                message.read(new ByteBufferAccessor(bytes), version);
                if (bytes.hasRemaining()) {
                    throw new IllegalStateException(bytes.remaining() + " bytes left");
                }
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer again = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(again), cache, version);
                System.out.println(HexFormat.of().formatHex(again.array()));
            } catch (Exception error) {
                System.out.println(error);
            }
        }
    }

    private static ApiMessage create(ApiMessageType type, String kind) {
        return kind.equals("request") ? type.newRequest() : type.newResponse();
    }
}
