// Encodes and decodes passwords as Apache Kafka does. Each argument is one call, its parts separated by "|":
// encode|SECRET|KEY_FACTORY|CIPHER|KEY_LENGTH|ITERATIONS|PASSWORD or decode|SECRET|ENCODED. Prints one line for each.
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

public class PasswordEncoding {
    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            String[] parts = argument.split("\\|", -1);
            Password secret = new Password(parts[1]);
            if (parts[0].equals("encode")) {
                PasswordEncoder encoder = PasswordEncoder.encrypting(
                    secret, parts[2], parts[3], Integer.parseInt(parts[4]), Integer.parseInt(parts[5]));
                System.out.println(encoder.encode(new Password(parts[6])));
            } else {
                String cipher = parts[2].contains("AES/GCM") ? "AES/GCM/NoPadding" : "AES/CBC/PKCS5Padding";
                PasswordEncoder encoder = PasswordEncoder.encrypting(secret, null, cipher, 128, 4096);
                System.out.println(encoder.decode(parts[2]).value());
            }
        }
    }
}
