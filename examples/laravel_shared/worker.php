<?php

// Takes orders with Laravel's own queue classes, and sends a receipt for each. It has no tracing.
//
// An application on Laravel has all of this configured; here it is done by hand, with Debian's
// packages php-illuminate-queue, php-illuminate-redis and php-redis, or with Composer's.

use Illuminate\Container\Container;
use Illuminate\Queue\RedisQueue;
use Illuminate\Redis\RedisManager;
use Illuminate\Support\Str;

error_reporting(E_ALL & ~E_DEPRECATED);
$vendor = __DIR__ . '/vendor/autoload.php';
require is_file($vendor) ? $vendor : 'Illuminate/Queue/autoload.php';
if (!extension_loaded('redis') || !class_exists(RedisManager::class)) {
    exit(1);
}
if (($argv[1] ?? '') === '--check') {
    exit(0);
}

$redis = parse_url(getenv('BABELQUEUE_REDIS_URL'));
$manager = new RedisManager(new Container(), 'phpredis', ['default' => [
    'host' => $redis['host'],
    'port' => $redis['port'] ?? 6379,
    'database' => ltrim($redis['path'] ?? '', '/') ?: 0,
]]);
$queue = new RedisQueue($manager, 'default', null, 90);
$queue->setContainer(new Container());
$orders = getenv('PREFIX') . 'orders';
$receipts = getenv('PREFIX') . 'receipts';

for ($left = 2, $until = time() + 30; $left > 0 && time() < $until; usleep(50000)) {
    $job = $queue->pop($orders);
    if ($job === null) {
        continue;
    }
    // What a PHP worker sees: an envelope, whose "job" is a URN and no class name. Laravel's own
    // `queue:work` cannot route that; the BabelQueue package for PHP can, or a loop such as this.
    $envelope = $job->payload();
    $what = "{$envelope['job']} {$envelope['data']['order_id']}, attempt {$job->attempts()}";
    if ($envelope['job'] === 'urn:shop:order:placed' && $job->attempts() === 1) {
        echo "PHP gives back $what\n";
        $job->release(0);
        continue;
    }
    echo "PHP handles $what\n";
    $queue->pushRaw(json_encode([
        'job' => 'urn:shop:receipt:sent',
        'trace_id' => $envelope['trace_id'],  // this is what carries the trace on
        'data' => ['order_id' => $envelope['data']['order_id'], 'for' => $envelope['job']],
        'meta' => [
            'id' => (string) Str::uuid(),
            'queue' => $receipts,
            'lang' => 'php',
            'schema_version' => 1,
            'created_at' => (int) (microtime(true) * 1000),
        ],
        'attempts' => 0,
    ], JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE), $receipts);
    $job->delete();
    $left--;
}
